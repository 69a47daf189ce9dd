"""Events of the driver's state machine: from the cluster that holds the agents, and from the shell that runs the machine.

`ClusterEvent` is what `Cluster.poll` returns, `Event` is what the machine takes. The shell keeps what agents print (`Output`)
and what became of their files (`AgentSaved`) to itself. The JVM sends the cluster's events by these names, with these fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mpca.wire.agent_ref import OfAgent
from mpca.wire.messages import LOOP, Hello
from mpca.wire.orders import Answer, Rediscovered

__all__ = [
    "KILLED_BY",
    "Acknowledged",
    "AgentBack",
    "AgentDied",
    "AgentFailedEvent",
    "AgentFinished",
    "AgentHello",
    "AgentProgress",
    "AgentSaved",
    "AgentsFound",
    "ClusterEvent",
    "Event",
    "ExchangeArrived",
    "ExchangeServed",
    "ExecutorDamages",
    "ExecutorLost",
    "ExecutorReady",
    "HoldEnded",
    "Initial",
    "JointPublished",
    "JointRestored",
    "OrderDone",
    "OrderFailed",
    "Output",
    "Prepared",
    "ReadLocal",
    "SaveAgents",
    "StopRequested",
    "Tick",
]


_KILLED = 137  # 128 + SIGKILL
#: What an exit code of 137 means, where nobody says who killed the process.
KILLED_BY = "killed, by the kernel if memory was short (dmesg there says so), else by somebody"


# ---- of the cluster ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExecutorReady:
    executor: str
    host: str
    cores: int


@dataclass(frozen=True, slots=True)
class ExecutorLost:
    executor: str
    reason: str


@dataclass(frozen=True, slots=True)
class AgentHello:
    executor: str
    host: str
    hello: Hello


@dataclass(frozen=True, slots=True)
class AgentDied(OfAgent):
    """The process ended by a signal or with an exit code. An exception of the user's code is AgentFailedEvent."""

    executor: str
    agent: int
    incarnation: int
    pid: int  # 0: it could not be started
    exit_code: int  # as Java reports it: 128 + signal for a signal, -1 for an error of the executor's own
    tail: str  # last lines of its output

    @property
    def reason(self) -> str:
        """In one line: how the process ended, and its last words, or what crashed and where.

        A crash in C code leaves a dump (of `faulthandler`), whose last line is a list of modules.
        """
        how = f"exit code {self.exit_code}"
        if self.exit_code == _KILLED:
            how += f": {KILLED_BY}"
        raised = self.exit_code == 1 and (
            "Traceback" in self.tail or 'File "' in self.tail
        )  # a long one has lost its first lines
        if self.pid and 0 <= self.exit_code < 128 and not raised:
            how += ": the process ended itself, without an exception (os._exit?)"
        lines = [line.strip() for line in self.tail.splitlines() if line.strip()]
        said = f"last output: {lines[-1]}" if lines else ""
        for fatal in (number for number, line in enumerate(lines) if line.startswith("Fatal Python error")):
            current = next((n for n, line in enumerate(lines) if n > fatal and line.startswith("Current thread")), None)
            said = ", ".join([lines[fatal], *(lines[current + 1 : current + 2] if current is not None else ())])
        return "; ".join([how, *([said] if said else ())])


@dataclass(frozen=True, slots=True)
class AgentFailedEvent(OfAgent):
    executor: str
    host: str
    agent: int
    incarnation: int
    error: str
    traceback: str


@dataclass(frozen=True, slots=True)
class AgentFinished(OfAgent):
    executor: str
    agent: int
    incarnation: int
    returns: bytes


@dataclass(frozen=True, slots=True)
class AgentProgress(OfAgent):
    agent: int
    incarnation: int
    steps: int
    samples: int
    train_s: float
    pause_s: float
    metrics: dict[str, float]  # as in wire.messages.Progress
    data: list[int] = field(default_factory=list)  # as in wire.messages.Progress
    function: str = LOOP  # as in wire.messages.Progress
    bad: list[list[str]] = field(default_factory=list)  # as in wire.messages.Progress
    bad_dropped: int = 0  # as in wire.messages.Progress
    # The executor adds these totals of this incarnation:
    data_read: int = 0  # bytes of files of HDFS that the executor read for the agent
    data_remote: int = 0  # those of them that came from another host


@dataclass(frozen=True, slots=True)
class AgentBack(OfAgent):
    """An agent that had been late answered after all; its executor dropped the late snapshot."""

    executor: str
    agent: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Output(OfAgent):
    """Lines that an agent printed."""

    agent: int
    incarnation: int
    lines: list[str]


@dataclass(frozen=True, slots=True)
class Acknowledged(OfAgent):
    """The executor has the whole broadcast and handed it to `agent`: it lies in the agent's slot, or waits for the slot."""

    broadcast: int
    executor: str
    agent: int
    incarnation: int
    start: float  # seconds of the driver's monotonic clock: download began
    end: float
    bytes_in: int  # that the executor received, counted once: 0 for its second agent
    from_driver: int = 0  # those of them that came from the driver itself


@dataclass(frozen=True, slots=True)
class OrderDone:
    order: int
    answers: list[Answer]
    start: float  # seconds of the driver's monotonic clock
    end: float
    driver_in: int  # bytes of sums that reached the driver


@dataclass(frozen=True, slots=True)
class OrderFailed:
    """The job was cancelled at its first failed task."""

    order: int
    executor: str | None  # to which the failed task was pinned, if that is known
    reason: str
    unfinished: list[str] = field(default_factory=list)  # executors of the order whose task had not ended
    damages: bool = False  # `executor` sent bytes whose checksum was wrong, twice: the same order would fail again


@dataclass(frozen=True, slots=True)
class ExecutorDamages:
    """Bytes of an executor came damaged twice. They came whole from elsewhere, so no order failed."""

    executor: str
    reason: str


@dataclass(frozen=True, slots=True)
class ExchangeArrived(OfAgent):
    """What an agent sent of its own accord lies on the driver, whole and checked; the agent waits for the answer.

    The driver's JVM fetches one such shard at a time, in the order in which it was asked. It comes with the fields of
    `wire.messages.Exchange`; times are seconds of the driver's monotonic clock.
    """

    executor: str
    agent: int
    incarnation: int
    number: int  # exchange of this incarnation, from 1
    shard: int
    updates: int
    version: int
    length: int  # bytes
    crc: int
    finite: bool
    start: float  # the agent was interrupted
    asked: float  # its question reached the driver
    arrived: float  # the bytes had


@dataclass(frozen=True, slots=True)
class AgentSaved(OfAgent):
    """What became of the file that `Order.save` asked for."""

    executor: str
    agent: int
    incarnation: int
    number: int  # of the Save
    bytes: int
    sha256: str  # hex, of what was written
    seconds: float  # from the agent's answer until the file was closed
    error: str  # why there is no file; empty: it is there


@dataclass(frozen=True, slots=True)
class HoldEnded(OfAgent):
    """A holding job ended (cancelled, aborted, excluded). Its agent may live on: rediscovery tells."""

    agent: int
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class AgentsFound:
    """One executor's answer to `rediscover`."""

    executor: str
    agents: list[Rediscovered]


# ---- of the shell --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: the machine looks at its deadlines."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    status: str  # "reached", "max_time", "max_cycles", "interrupted", "failed"
    reason: str
    final: bool = False  # the user's own error is the cause: another attempt would fail the same way


@dataclass(frozen=True, slots=True)
class ReadLocal:
    """The shell wants the local tensors that an agent has now; `Machine.local_reads` counts the reads that have ended."""


@dataclass(frozen=True, slots=True)
class SaveAgents:
    """The shell wants what is each agent's own saved into files, and the joint model as it is then. Answer: SaveJoint."""


@dataclass(frozen=True, slots=True)
class Initial:
    """The shell holds x_0 of this shard, or a shard of local tensors."""

    shard: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """The sum of (cycle, shard) is in the joint model, and its outgoing form is published."""

    cycle: int
    shard: int
    broadcast: int | None  # None: the method never broadcasts
    version: int
    start: float
    end: float
    moved: float = 0.0  # Euclidean distance that the joint model moved by it; 0 without a norm limit
    size: float = 0.0  # Euclidean norm of the joint model's shard; 0 without a norm limit


@dataclass(frozen=True, slots=True)
class ExchangeServed:
    """The shell has answered an agent."""

    sent: ExchangeArrived
    taken: bool  # what was sent is in the joint model
    reason: str  # why not; empty: it is, or nobody counts on it any more
    version: int  # of the joint state that the answer belongs to
    staleness: int  # exchanges of the shard since the joint state that the agent had taken before
    share: float  # as in methods.base.Served
    answered: float  # seconds of the machine


@dataclass(frozen=True, slots=True)
class JointPublished:
    """Every shard of the joint model is published for agents that take it as their own."""

    broadcasts: list[tuple[int, int, int, int]]  # (shard, broadcast, version, bytes)


@dataclass(frozen=True, slots=True)
class JointRestored:
    """The shell has taken the joint model from a backup, or x_0 from before a cut. The event comes before the first hello with
    these shards."""

    versions: tuple[int, ...]  # exchanges of each shard so far


# ---- the unions ----------------------------------------------------------------------------------------------------------

#: What the cluster tells the machine.
_Heard = (
    ExecutorReady
    | ExecutorLost
    | AgentHello
    | AgentDied
    | AgentFailedEvent
    | AgentFinished
    | AgentProgress
    | AgentBack
    | Acknowledged
    | OrderDone
    | OrderFailed
    | ExecutorDamages
    | HoldEnded
    | AgentsFound
)
#: What `Cluster.poll` returns.
ClusterEvent = _Heard | ExchangeArrived | AgentSaved | Output
#: What the machine takes; anything else is an error. The two of exchanges are for `server.ServerMachine` alone.
Event = (
    _Heard
    | ExchangeArrived
    | Tick
    | StopRequested
    | ReadLocal
    | SaveAgents
    | Initial
    | Prepared
    | ExchangeServed
    | JointPublished
    | JointRestored
)
