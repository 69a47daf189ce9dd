"""An agent without torch: production pipe, protocol and segment, and a trainer that adds a constant once a step.

What it adds is its number plus one, so every value of a snapshot can be told from the agent and the updates it made.
Its Start carries in `conf`: `elements`, `step_s` (seconds of a step), and what goes wrong (`nan_after`, `fail_after`,
`return_after` steps). With `asks_every` it exchanges a shard after so many steps, one after the other, and goes
the share of the way to the answer.
"""

from __future__ import annotations

import os
import time
from itertools import pairwise

import numpy as np

from mpca.agent.link import Link
from mpca.agent.process import die_with_parent, lead_own_group, move_control_pipe
from mpca.shm import AgentSegment
from mpca.wire.messages import (
    Begin,
    Exchange,
    Failed,
    Finished,
    Hello,
    Install,
    Installed,
    Progress,
    Snapshot,
    SnapshotRequest,
    Start,
    Stop,
)


def initial(elements: int) -> np.ndarray:
    """x_0, the same everywhere."""
    return (np.arange(elements) % 97).astype(np.float32) / 97


def bounds(elements: int, shards: int) -> list[int]:
    return [j * elements // shards for j in range(shards + 1)]


class PlainAgent:
    def __init__(self, link: Link, start: Start) -> None:
        self.link, self.start, self.conf = link, start, start.conf
        self.x = initial(self.conf["elements"])
        self.bounds = bounds(len(self.x), start.shards)
        self.segment = AgentSegment(self.bounds, start.agent)
        self.tau = [0] * start.shards
        self.versions = [0] * start.shards
        self.steps = self.asked = 0
        self.asking: int | None = None  # a shard
        self.begun = self.stopped = False

    def hello(self) -> None:
        self.link.send(
            Hello(
                agent=self.start.agent,
                incarnation=self.start.incarnation,
                pid=os.getpid(),
                python="3",
                torch="none",
                mpca="0",
                x0_hash="x0",
                layout=[["x", [len(self.x)], "parameter", 0]],
                local={},
                tied={},
                bounds=self.bounds,
                parameters=len(self.x),
                segment_fd=self.segment.fd,
                segment_bytes=self.segment.size_bytes,
                slots=self.segment.slots,
            )
        )

    def handle(self, message) -> None:
        began = time.monotonic()
        if isinstance(message, Begin):
            self.begun = True
        elif isinstance(message, Stop):
            self.stopped = True
        elif isinstance(message, SnapshotRequest):
            shard = message.shard
            tau, self.tau[shard] = self.tau[shard], 0
            self._write_snapshot(shard, message.cycle, tau)
            self.link.send(Snapshot(message.cycle, shard, tau, began, time.monotonic()))
        elif isinstance(message, Install):
            low, high = self.bounds[message.shard : message.shard + 2]
            arrival = self.segment.read_arrival(message.shard, message.version, message.mode)
            if "asks_every" in self.conf and message.mode == "install":
                arrival = self.x[low:high] + np.float32(message.alpha) * (arrival - self.x[low:high])
            self.x[low:high] = arrival
            self.versions[message.shard] = message.version
            if message.shard == self.asking:
                self.asking = None
            self.link.send(Installed(message.shard, message.version, message.mode, began, time.monotonic()))

    def step(self) -> None:
        time.sleep(self.conf.get("step_s", 0.005))  # stands for the step's work
        self.steps += 1
        self.x += np.float32(self.start.agent + 1)
        self.tau = [tau + 1 for tau in self.tau]
        if self.steps == self.conf.get("nan_after"):
            self.x[:] = np.nan

    def _write_snapshot(self, shard: int, cycle: int, tau: int) -> None:
        low, high = self.bounds[shard : shard + 2]
        np.copyto(self.segment.begin_snapshot(shard, cycle, tau), self.x[low:high])
        self.segment.end_snapshot()

    def exchange(self) -> None:
        """One shard; nothing else is answered until its answer has come."""
        began = time.monotonic()
        shard = self.asking = self.asked % self.start.shards
        self.asked += 1
        tau, self.tau[shard] = self.tau[shard], 0
        self._write_snapshot(shard, self.asked, tau)
        self.link.send(Exchange(self.asked, shard, tau, self.versions[shard], began, time.monotonic()))
        held = []
        while self.asking is not None and not self.stopped:
            for message in self.link.receive(None):
                if isinstance(message, SnapshotRequest):
                    held.append(message)
                else:
                    self.handle(message)
        for message in held:
            self.handle(message)

    def run(self) -> None:
        self.hello()
        print(f"plain agent {self.start.agent} says hello", flush=True)
        while not self.stopped and self.steps != self.conf.get("return_after"):
            if self.steps == self.conf.get("fail_after"):
                self.link.send(Failed("ValueError: as asked", "Traceback: line 1"))
                return
            for message in self.link.receive(0.0 if self.begun else None):
                self.handle(message)
            if self.begun and not self.stopped:
                self.step()
                if self.steps % self.conf.get("asks_every", self.steps + 1) == 0:
                    self.exchange()
        self.link.send(Progress(self.steps, self.steps, 1.0, 0.0, {"loss": 0.5}))
        self.link.send(Finished(str(self.steps).encode()))


def main() -> None:
    read_fd, write_fd = move_control_pipe()
    die_with_parent(read_fd)
    lead_own_group()
    link = Link(read_fd, write_fd)
    (start,) = link.receive(None)
    assert isinstance(start, Start)
    assert all(low <= high for low, high in pairwise(bounds(start.conf["elements"], start.shards)))
    PlainAgent(link, start).run()


if __name__ == "__main__":
    main()
