"""Whole runs on real executors, through the same door as a user's, with faults at exact points.

`Observed` stands between driver and cluster, as a `Cluster` that hands everything on: it sees what passes, and a *story*
makes things happen. A story is a generator: it yields a condition, and goes on once that holds. Conditions are looked at
when an order is about to go out (`coming`) and after events came, in the driver's own loop, so nothing races with it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from mpca.api.launch import Ended, Job, launch, resolve
from mpca.api.shipping import ship
from mpca.driver.callbacks import Callback
from mpca.driver.cluster import AgentSpec, Cluster, Outgoing
from mpca.driver.events import (
    Acknowledged,
    AgentFinished,
    AgentHello,
    AgentProgress,
    ClusterEvent,
    ExchangeArrived,
    ExecutorReady,
    OrderDone,
)
from mpca.driver.objectives import Evaluate
from mpca.driver.status import RunStatus
from mpca.records import AgentRecord, CycleRecord, ExchangeRecord, PauseRecord, Record, read_records
from mpca.wire.agent_ref import AgentId, AgentRef
from mpca.wire.orders import Frozen, Order
from tests.spark import jobs
from tests.spark.support import alive, java_pids, kill
from tests.support.fake_executor import wait_until

__all__ = ["Observed", "Story", "Told", "run_engine"]

#: No run here takes so long, except on a machine that has stopped.
LIMIT = "240s"
Story = Callable[["Observed"], Generator[Callable[[], Any], None, None]]

cloudpickle.register_pickle_by_value(jobs)


class Observed:
    """See the module's text."""

    def __init__(
        self,
        work_dir: Path,
        folder: Path,
        story: Story | None = None,
        executors: int | None = None,  # the driver hears of no more than so many
        remember: bool = True,  # keep all that passed; not for runs whose memory is looked at
    ) -> None:
        self.folder = folder  # what train functions write into
        self.coming: Order | None = None  # the order that is about to go out
        self.orders: list[Order] = []
        self.pids: dict[AgentId, int] = {}
        self.places: dict[int, str] = {}  # agent -> executor, of its newest incarnation
        self.frozen: dict[tuple[int, AgentId], Frozen] = {}  # by cycle and process
        self.late: dict[tuple[int, int], str] = {}  # (cycle, agent) -> reason
        self.contributed: list[tuple[int, AgentId]] = []  # cycle and process, once their sum was made
        self.reductions: list[tuple[Order, OrderDone]] = []
        self.finished: set[int] = set()  # agents whose train function returned
        self.data: dict[AgentId, list[int]] = {}  # where its stream is
        self.exchanges: list[ExchangeArrived] = []  # that agents asked for
        self.sent: dict[tuple[AgentId, int], np.ndarray] = {}  # in those, by process and number
        self.published: dict[int, np.ndarray] = {}
        self.arrived: list[Acknowledged] = []
        self.sums: dict[int, np.ndarray] = {}  # that the driver took, by order
        self.cluster: Any = None
        self._work_dir = work_dir
        self._story = story(self) if story is not None else iter(())
        self._executors = executors
        self._remember = remember
        self._ready: set[str] = set()
        self._condition: Callable[[], Any] | None = next(self._story, None)

    def over(self, cluster: Cluster) -> Observed:
        self.cluster = cluster
        return self

    # ---- the port ----

    def start_agent(self, who: AgentRef, spec: AgentSpec) -> None:
        self.places[who.agent] = who.executor
        self.cluster.start_agent(who, spec)

    def submit(self, order: Order) -> None:
        self.coming = order
        self._go_on()
        self.coming = None
        if self._remember:
            self.orders.append(order)
        self.cluster.submit(order)

    def cancel(self, order: int, reason: str) -> None:
        self.cluster.cancel(order, reason)

    def room(self, elements: int) -> np.ndarray:
        return self.cluster.room(elements)

    def take_sum(self, order: int, length: int, into: np.ndarray | None = None) -> np.ndarray:
        taken = self.cluster.take_sum(order, length, into)
        if self._remember:
            self.sums[order] = taken.copy()
        return taken

    def publish(self, vector: np.ndarray, joint: Outgoing | None = None) -> int:
        broadcast = self.cluster.publish(vector, joint)
        if self._remember:
            self.published[broadcast] = vector.copy()
        return broadcast

    def withdraw(self, broadcast: int) -> None:
        self.cluster.withdraw(broadcast)

    def take_sent(self, who: AgentId, number: int, length: int) -> np.ndarray:
        sent = self.cluster.take_sent(who, number, length)
        if self._remember:
            self.sent[who, number] = sent.copy()
        return sent

    def answer(self, who: AgentId, number: int, vector: np.ndarray, version: int, mode: str, share: float) -> None:
        self.cluster.answer(who, number, vector, version, mode, share)

    def rediscover(self, executors: list[str]) -> None:
        self.cluster.rediscover(executors)

    def poll(self, timeout_s: float) -> list[ClusterEvent]:
        events = [event for event in self.cluster.poll(timeout_s) if not self._unseen(event)]
        for event in events:
            self._note(event)
        self._go_on()
        return events

    def close(self) -> None:
        self.cluster.close()

    # ---- what passed ----

    def _unseen(self, event: ClusterEvent) -> bool:
        if isinstance(event, ExecutorReady) and self._executors is not None:
            if len(self._ready) == self._executors and event.executor not in self._ready:
                return True
            self._ready.add(event.executor)
        return False

    def _note(self, event: ClusterEvent) -> None:
        if isinstance(event, AgentHello):
            self.pids[event.hello.id] = event.hello.pid
        elif isinstance(event, AgentFinished):
            self.finished.add(event.agent)
        elif isinstance(event, ExchangeArrived):
            self.exchanges.append(event)
        elif isinstance(event, Acknowledged) and self._remember:
            self.arrived.append(event)
        elif isinstance(event, AgentProgress) and event.data:
            self.data[event.id] = event.data
        elif isinstance(event, OrderDone) and self._remember:
            order = next(one for one in reversed(self.orders) if one.order == event.order)
            if order.reduce is not None and order.reduce.cycle >= 0:
                self.reductions.append((order, event))
                parts = {part.executor for part in order.reduce.parts}
                of_cycle = [key for key in self.frozen if key[0] == order.reduce.cycle]
                self.contributed += [(cycle, who) for cycle, who in of_cycle if self.places[who.agent] in parts]
            for answer in event.answers:
                for one in answer.frozen:
                    self.frozen[order.freeze.cycle, one.id] = one
                for agent, why in answer.late.items():
                    self.late[order.freeze.cycle, agent] = why.text

    # ---- what stories ask ----

    def reducing(self, cycle: int) -> bool:
        """The order that sums this cycle is about to go out: everything is materialised, nothing is summed."""
        return self.coming is not None and self.coming.reduce is not None and self.coming.reduce.cycle >= cycle

    def asks(self, agent: int, incarnation: int, times: int = 1) -> bool:
        """It has sent a shard of its own accord so often, and waits for the answer to the newest."""
        return sum(one.id == (agent, incarnation) for one in self.exchanges) >= times

    def takes_part(self, agent: int, incarnation: int, after: int = -1, times: int = 3) -> bool:
        """It has contributed to so many cycles after that one."""
        cycles = {cycle for cycle, who in self.contributed if who == (agent, incarnation) and cycle > after}
        return len(cycles) >= times

    # ---- what stories do ----

    def kill_agent(self, agent: int) -> None:
        self._kill(self.pid(agent))

    def kill_executor(self, agent: int) -> None:
        """The JVM that holds this agent."""
        self._kill(java_pids(self._work_dir)[self.places[agent]])

    def stop_agent(self, agent: int) -> None:
        os.kill(self.pid(agent), signal.SIGSTOP)

    def end_agent(self, agent: int) -> None:
        """As politely as an operating system can."""
        os.kill(self.pid(agent), signal.SIGTERM)

    def tell_agent(self, agent: int, fault: str) -> None:
        """Have it do to itself what `jobs.quadratic` can with `obey`."""
        new = self.folder / f"new-fault-{agent}"
        new.write_text(fault)
        new.rename(self.folder / f"fault-{agent}")

    def fired(self, agent: int, fault: str) -> list[int]:
        """Pids of this agent that have begun with it."""
        return [int(path.name.rpartition("-")[2]) for path in self.folder.glob(f"fired-{agent}-{fault}-*")]

    def continue_agent(self, agent: int) -> None:
        os.kill(self.pid(agent), signal.SIGCONT)

    def stop_executor(self, agent: int) -> None:
        """The JVM that holds this agent; the agent itself goes on."""
        os.kill(java_pids(self._work_dir)[self.places[agent]], signal.SIGSTOP)

    def continue_executor(self, agent: int) -> None:
        os.kill(java_pids(self._work_dir)[self.places[agent]], signal.SIGCONT)

    def end(self) -> None:
        """Train functions return, and with the last of them the run ends."""
        (self.folder / "end").touch()

    def pid(self, agent: int) -> int:
        """Of the agent's newest incarnation."""
        return self.pids[max(key for key in self.pids if key[0] == agent)]

    def _kill(self, pid: int) -> None:
        assert alive(pid)
        kill(pid)
        wait_until(lambda: not alive(pid), f"the end of process {pid}")

    def _go_on(self) -> None:
        while self._condition is not None and self._condition():
            self._condition = next(self._story, None)

    @property
    def told(self) -> bool:
        """Whether the story came to its end: every fault in it has happened."""
        return self._condition is None


@dataclass(frozen=True)
class Told:
    """A run that has ended."""

    ended: Ended
    run: Observed
    records: list[Record] = field(repr=False)

    @property
    def cycles(self) -> list[CycleRecord]:
        return [one for one in self.records if isinstance(one, CycleRecord)]

    @property
    def exchanges(self) -> list[ExchangeRecord]:
        return [one for one in self.records if isinstance(one, ExchangeRecord)]

    @property
    def pauses(self) -> list[PauseRecord]:
        return [one for one in self.records if isinstance(one, PauseRecord)]

    def agents(self, event: str) -> list[AgentRecord]:
        return [one for one in self.records if isinstance(one, AgentRecord) and one.event == event]

    def cycle(self, number: int) -> CycleRecord:
        return next(one for one in self.cycles if one.cycle == number)


def run_engine(
    spark: Any,
    work_dir: Path,
    run_dir: Path,
    train: Callable[..., Any],
    *args: Any,
    sets: tuple[str, ...] = (),
    story: Story | None = None,
    resume: str | None = None,
    executors: int | None = None,
    remember: bool = True,
    files: Path | None = None,
    around: Callable[[Observed], Cluster] = lambda observed: observed,
    evaluate: Evaluate | None = None,
    on_status: Callable[[RunStatus], None] = lambda status: None,
    callbacks: tuple[Callback, ...] = (),
    **options: Any,
) -> Told:
    """Run `train(*args, **options)` on three agents, unless `sets` says otherwise, until the run or the story ends.

    The method is mpca, whose three shards do not depend on how fast this machine is at the moment.

    `around` puts one more port between the driver and what is observed. What train functions write lies in `files`.
    """
    settings = ["method.name=mpca", "cluster.agents=3", "cluster.start_timeout=150s", f"objectives.max_time={LIMIT}", *sets]
    folder = files or run_dir.parent / f"{run_dir.name}-files"
    folder.mkdir(exist_ok=True)
    observed = Observed(work_dir, folder, story, executors, remember)
    if train in (jobs.quadratic, jobs.streamed, jobs.shared, jobs.remembering):
        args = (str(folder), *args)
    job = Job(
        config=resolve(None, settings),
        payload=ship(train, args, options),
        evaluate=evaluate,
        run_dir=run_dir,
        resume=resume,
        session=spark,
        callbacks=callbacks,
        wrap_cluster=lambda cluster: around(observed.over(cluster)),
    )
    ended = launch(job, on_status, on_output=lambda agent, line: print(f"[agent {agent}] {line}"), on_stage=print)
    assert observed.told, f"the story was not told to its end: {ended.reason}"
    wait_until(lambda: not any(alive(pid) for pid in observed.pids.values()), "the end of all agents", 10.0)
    return Told(ended, observed, _records(run_dir / "records.jsonl"))


def _records(path: Path) -> list[Record]:
    """None, when the folder was removed or its disk has failed."""
    try:
        return read_records(path).records
    except OSError:
        return []
