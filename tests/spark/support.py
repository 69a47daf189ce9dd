"""A driver by hand: a SparkCluster, its events by kind, and orders one after the other. No decisions of production here."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from mpca.driver.cluster import AgentSpec
from mpca.driver.events import (
    Acknowledged,
    AgentDied,
    AgentHello,
    AgentsFound,
    ClusterEvent,
    ExecutorLost,
    ExecutorReady,
    OrderDone,
    OrderFailed,
)
from mpca.spark.run.cluster import SparkCluster
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import Download, Freeze, Order, Part, Rediscovered, Reduce
from tests.spark.plain_agent import bounds, initial

ROOT = Path(__file__).resolve().parents[2]
PLAIN_AGENT = ("-m", "tests.spark.plain_agent")


class HandDriver:
    """Submits orders and waits for what comes of them; everything that came stays in `events`."""

    def __init__(self, spark, run: str, *, elements: int = 30_000, shards: int = 3, **options) -> None:
        self.cluster = SparkCluster(spark, run, agent_command=PLAIN_AGENT, **options)
        self.run, self.elements, self.shards = run, elements, shards
        self.events: list[ClusterEvent] = []
        self.places: dict[int, AgentRef] = {}  # by agent
        self.pids: dict[int, int] = {}
        self.orders = 0
        self.asked: dict[int, list[str]] = {}  # executors of each order

    def __enter__(self) -> HandDriver:
        return self

    def __exit__(self, *_) -> None:
        self.cluster.close()

    # ---- events

    def wait(self, kind: type, condition=lambda event: True, *, timeout_s: float = 60.0, new: bool = True):
        """The first event of that kind that fits; among those already seen too, unless `new`."""
        seen = 0 if not new else len(self.events)
        until = time.monotonic() + timeout_s
        while True:
            for event in self.events[seen:]:
                if isinstance(event, kind) and condition(event):
                    return event
                if isinstance(event, AgentDied) and "Traceback" in event.tail and AgentDied not in _kinds(kind):
                    raise AssertionError(f"an agent died: {event.tail}")
            seen = len(self.events)
            if time.monotonic() > until:
                kinds = [type(event).__name__ for event in self.events]
                raise TimeoutError(f"no {kind} within {timeout_s} s; events={kinds}, last={self.events[-3:]}")
            self.events += self.cluster.poll(0.1)

    def rediscover(self, executors: list[str]) -> dict[str, list[Rediscovered]]:
        """What these answer, by executor."""
        before = len(self.events)
        self.cluster.rediscover(executors)

        def said() -> dict[str, list[Rediscovered]]:
            since = [event for event in self.events[before:] if isinstance(event, AgentsFound)]
            return {event.executor: event.agents for event in since if event.executor in executors}

        self.wait(AgentsFound, lambda event: set(said()) == set(executors))
        return said()

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    def executors(self, count: int) -> list[str]:
        """Ids of `count` executors that are there, oldest first."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            gone = {event.executor for event in self.of(ExecutorLost)}
            ready = [event.executor for event in self.of(ExecutorReady) if event.executor not in gone]
            if len(ready) >= count:
                return sorted(ready, key=int)[:count]
            self.events += self.cluster.poll(0.1)
        raise TimeoutError(f"no {count} executors: {self.events}")

    def all_pids(self) -> list[int]:
        """Of every agent that ever said hello."""
        return [event.hello.pid for event in self.of(AgentHello)]

    # ---- agents

    def start_agent(self, agent: int, executor: str, *, incarnation: int = 1, wait: bool = True, **conf) -> None:
        spec = AgentSpec(
            python=sys.executable,
            env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            start={
                "agents": 3,
                "run": self.run,
                "seed": 1,
                "shards": self.shards,
                "layer_aligned": False,
                "method": {"name": "mpca"},
                "task": "train",
                "payload": b"",
                "conf": {"elements": self.elements, "step_s": 0.005, **conf},
            },
        )
        self.places[agent] = AgentRef(executor, agent, incarnation)
        self.cluster.start_agent(self.places[agent], spec)
        if wait:
            self.attached(agent)

    def attached(self, agent: int) -> None:
        hello = self.wait(
            AgentHello,
            lambda event: event.hello.id == self.places[agent].id,
            new=False,
        )
        self.pids[agent] = hello.hello.pid

    def start_agents(self, executors: list[str], *, per_executor: int = 1, **conf) -> None:
        """Agents 0, 1, ... on the executors given, as many on each."""
        for number in range(len(executors) * per_executor):
            self.start_agent(number, executors[number // per_executor], wait=False, **conf)
        for number in range(len(executors) * per_executor):
            self.attached(number)

    def everyone(self) -> list[AgentRef]:
        return [who for _, who in sorted(self.places.items())]

    # ---- orders

    def submit(self, *, cycle: int = 0, deadline_s: float = 20.0, executors: list[str] | None = None, **parts) -> int:
        self.orders += 1
        if executors is None:
            executors = list(dict.fromkeys(who.executor for who in self.places.values()))
        self.asked[self.orders] = executors
        self.cluster.submit(
            Order(
                order=self.orders,
                run=self.run,
                term=0,
                cycle=cycle,
                deadline=time.monotonic() + deadline_s,
                executors=executors,
                description=f"mpca cycle {cycle}",
                **parts,
            )
        )
        return self.orders

    def done(self, order: int, timeout_s: float = 60.0) -> OrderDone:
        event = self.wait((OrderDone, OrderFailed), lambda one: one.order == order, timeout_s=timeout_s, new=False)
        assert isinstance(event, OrderDone), event
        return event

    def failed(self, order: int, timeout_s: float = 60.0) -> OrderFailed:
        """How an order failed. If one of its executors is lost it is cancelled, as by the run's machine: Spark may have lost it
        before the order's task began there, and the task then waits for it."""

        def matters(one: ClusterEvent) -> bool:
            return one.executor in self.asked[order] if isinstance(one, ExecutorLost) else one.order == order

        first = self.wait((OrderDone, OrderFailed, ExecutorLost), matters, timeout_s=timeout_s, new=False)
        if isinstance(first, ExecutorLost):
            self.cluster.cancel(order, f"executor {first.executor} lost")
        event = self.wait((OrderDone, OrderFailed), lambda one: one.order == order, timeout_s=timeout_s, new=False)
        assert isinstance(event, OrderFailed), event
        return event

    def shard_bytes(self, shard: int) -> int:
        low, high = bounds(self.elements, self.shards)[shard : shard + 2]
        return 4 * (high - low)

    def freeze(self, cycle: int, agents: list[AgentRef] | None = None) -> Freeze:
        return Freeze(cycle, cycle % self.shards, self.everyone() if agents is None else agents)

    def reduce(self, cycle: int, answers: list) -> Reduce:
        shard = cycle % self.shards
        parts = [Part(answer.executor, answer.weight) for answer in answers if answer.weight > 0]
        return Reduce(cycle, shard, self.shard_bytes(shard), parts)

    def download(self, broadcast: int, shard: int, version: int, mode: str = "replace") -> Download:
        return Download(broadcast, shard, version, mode, self.shard_bytes(shard), self.everyone())

    def acknowledged(self, broadcast: int, count: int) -> list[Acknowledged]:
        def whole(_) -> bool:
            found = {event.id for event in self.of(Acknowledged) if event.broadcast == broadcast}
            return len(found) >= count

        self.wait(Acknowledged, whole, new=False)
        return [event for event in self.of(Acknowledged) if event.broadcast == broadcast]


def _kinds(kind: type | tuple) -> tuple:
    return kind if isinstance(kind, tuple) else (kind,)


def plain_value(elements: int, shards: int, shard: int, agent: int, steps: int) -> np.ndarray:
    """What a plain agent that was never installed into holds after so many steps."""
    x = initial(elements)
    for _ in range(steps):
        x += np.float32(agent + 1)
    low, high = bounds(elements, shards)[shard : shard + 2]
    return x[low:high]


def weighted_sum(parts: list[tuple[np.ndarray, float]]) -> np.ndarray:
    """The sum as decided: float32 accumulator from zeros, products in float64, parts in the order given."""
    total = sum(weight for _, weight in parts)
    acc = np.zeros_like(parts[0][0])
    for part, weight in parts:
        acc = (acc.astype(np.float64) + (weight / total) * part.astype(np.float64)).astype(np.float32)
    return acc


def tree_sum(parts: list[tuple[np.ndarray, float]]) -> np.ndarray:
    """The same by a tree: neighbours into about sqrt(K) groups, their sums rounded to float32, then added in order."""
    total, groups = sum(weight for _, weight in parts), math.ceil(len(parts) ** 0.5)
    sums = [np.zeros_like(parts[0][0]) for _ in range(groups)]
    for position, (part, weight) in enumerate(parts):
        group = position * groups // len(parts)
        sums[group] = (sums[group].astype(np.float64) + (weight / total) * part.astype(np.float64)).astype(np.float32)
    acc = np.zeros_like(parts[0][0])
    for one in sums:
        acc = acc + one
    return acc


SUMS = {"ranges": weighted_sum, "tree": tree_sum}


def java_pids(work_dir: Path) -> dict[str, int]:
    """Pids of the executor JVMs of a session, by executor id, from their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--executor-id" in words and any(os.fsencode(work_dir) in word for word in words):
            found[words[words.index(b"--executor-id") + 1].decode()] = int(entry.name)
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
