"""The port to whatever holds the agents: Spark executors (`spark.cluster`) or a simulated network (`sim.cluster`).

Calls return at once; what comes of them arrives as events from `poll`. The two implementations pass the same tests
(`tests/cluster_contract.py`). Nothing here assumes that the joint model is one array: sums and broadcasts go by shard.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from mpca.wire.messages import LOOP, Hello
from mpca.wire.orders import Answer, Order, Rediscovered

__all__ = [
    "Acknowledged",
    "AgentBack",
    "AgentDied",
    "AgentFailedEvent",
    "AgentFinished",
    "AgentHello",
    "AgentProgress",
    "AgentSpec",
    "AgentsFound",
    "Cluster",
    "ClusterEvent",
    "ExecutorDamages",
    "ExecutorLost",
    "ExecutorReady",
    "HoldEnded",
    "OrderDone",
    "OrderFailed",
    "Output",
]


class ClusterEvent:
    """Base of what `poll` returns."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ExecutorReady(ClusterEvent):
    executor: str
    host: str
    cores: int


@dataclass(frozen=True, slots=True)
class ExecutorLost(ClusterEvent):
    executor: str
    reason: str


@dataclass(frozen=True, slots=True)
class AgentHello(ClusterEvent):
    executor: str
    host: str
    hello: Hello


@dataclass(frozen=True, slots=True)
class AgentDied(ClusterEvent):
    """The process ended: by signal or exit code; not by an exception of the user's code (AgentFailedEvent)."""

    executor: str
    agent: int
    incarnation: int
    pid: int
    exit_code: int  # as Java reports it: 128 + signal for a signal
    tail: str  # last lines of its output

    @property
    def reason(self) -> str:
        """In one line: how it ended, and the last that it said, or what it crashed of and where.

        A crash in C code leaves a dump (of `faulthandler`), whose last line is a list of modules.
        """
        lines = [line.strip() for line in self.tail.splitlines() if line.strip()]
        said = f"last output: {lines[-1]}" if lines else ""
        for fatal in (number for number, line in enumerate(lines) if line.startswith("Fatal Python error")):
            current = next((n for n, line in enumerate(lines) if n > fatal and line.startswith("Current thread")), None)
            said = ", ".join([lines[fatal], *(lines[current + 1 : current + 2] if current is not None else ())])
        return "; ".join([f"exit code {self.exit_code}", *([said] if said else ())])


@dataclass(frozen=True, slots=True)
class AgentFailedEvent(ClusterEvent):
    executor: str
    host: str
    agent: int
    incarnation: int
    error: str
    traceback: str


@dataclass(frozen=True, slots=True)
class AgentFinished(ClusterEvent):
    executor: str
    agent: int
    incarnation: int
    returns: bytes


@dataclass(frozen=True, slots=True)
class AgentProgress(ClusterEvent):
    agent: int
    incarnation: int
    steps: int
    samples: int
    train_s: float
    pause_s: float
    metrics: dict[str, float]
    data: list[int] = field(default_factory=list)  # as in wire.messages.Progress
    function: str = LOOP  # as in wire.messages.Progress
    bad: list[list[str]] = field(default_factory=list)  # as in wire.messages.Progress
    bad_dropped: int = 0  # as in wire.messages.Progress
    # What its executor adds, totals of this incarnation too:
    data_read: int = 0  # bytes of files of HDFS that it read for the agent
    data_remote: int = 0  # ... which came from another host


@dataclass(frozen=True, slots=True)
class AgentBack(ClusterEvent):
    """An agent that had been late answered after all; its late yield was dropped on the executor."""

    executor: str
    agent: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Output(ClusterEvent):
    """Lines that an agent printed."""

    agent: int
    incarnation: int
    lines: list[str]


@dataclass(frozen=True, slots=True)
class Acknowledged(ClusterEvent):
    """Executor has the whole broadcast and handed it to `agent` (it lies in its slot, or waits for the slot)."""

    broadcast: int
    executor: str
    agent: int
    incarnation: int
    start: float  # seconds of the driver's monotonic clock: download began
    end: float
    bytes_in: int  # counted once an executor: 0 for its second agent
    from_driver: int = 0  # of those, bytes that came from the driver itself


@dataclass(frozen=True, slots=True)
class OrderDone(ClusterEvent):
    order: int
    answers: list[Answer]
    start: float  # seconds of the driver's monotonic clock
    end: float
    driver_in: int  # bytes of sums that reached the driver


@dataclass(frozen=True, slots=True)
class OrderFailed(ClusterEvent):
    """The job was cancelled at its first failed task."""

    order: int
    executor: str | None  # the executor that the failed task was pinned to, if known
    reason: str
    unfinished: list[str] = field(default_factory=list)  # executors of the order whose task had not ended
    damages: bool = False  # `executor` sent bytes whose checksum was wrong, twice: the same order would fail again


@dataclass(frozen=True, slots=True)
class ExecutorDamages(ClusterEvent):
    """Bytes of an executor came damaged twice, and were had from elsewhere: no order failed by it."""

    executor: str
    reason: str


@dataclass(frozen=True, slots=True)
class HoldEnded(ClusterEvent):
    """A holding job ended; the agent may live on (cancelled, aborted, excluded): rediscover."""

    agent: int
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class AgentsFound(ClusterEvent):
    """One executor's answer to `rediscover`."""

    executor: str
    agents: list[Rediscovered]


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """What an agent process is started with. `start` is the packed Start message but for agent and incarnation."""

    python: str  # interpreter
    env: dict[str, str]
    start: dict[str, Any]  # fields of wire.messages.Start


class Cluster(Protocol):
    """See the module's text."""

    def start_agent(self, agent: int, incarnation: int, executor: str, spec: AgentSpec) -> None:
        """Submit the holding job of one agent, pinned to `executor`. Events: AgentHello, AgentDied, HoldEnded, ..."""
        ...

    def submit(self, order: Order) -> None:
        """Events: OrderDone, or OrderFailed at the first failed task; Acknowledged for its downloads."""
        ...

    def cancel(self, order: int, reason: str) -> None:
        """End a job that is over its deadline; OrderFailed follows."""
        ...

    def take_sum(self, order: int, length: int) -> np.ndarray:
        """The sum that a finished order's reduce made: float32, a copy. Frees it in the cluster."""
        ...

    def publish(self, vector: np.ndarray) -> int:
        """Make a broadcast of float32 `vector` ready for download; returns its id (unique in the run)."""
        ...

    def withdraw(self, broadcast: int) -> None:
        """Free a broadcast on the driver; executors drop it by `Order.forget_broadcasts`."""
        ...

    def rediscover(self, executors: list[str]) -> None:
        """Ask the registries of these executors which agents live. Events: AgentsFound, from each that can be reached."""
        ...

    def poll(self, timeout_s: float) -> list[ClusterEvent]:
        """Events since the last call, oldest first; waits up to `timeout_s` for the first."""
        ...

    def close(self) -> None:
        """Kill what is left and free everything; safe to call twice."""
        ...
