"""Orders from the driver to the executors, one per Spark job, in its closure; and the answer of each task.

Every executor carries out an order in this sequence: forget data that no cycle needs any more; deliver ReadersChanged, Cut,
Begin, SaveState and Stop; start the download of broadcasts in the background; reduce one shard; freeze the snapshots for the
next cycle. Since snapshots are frozen at the end of the job before, every chunk exists when a reduce starts (no ready mark, no
polling, no miss). And the driver knows every contributor, its tau and that it is finite *before* it orders a sum.

Every part is idempotent: a task that runs again, or an order that is submitted again without a lost executor, gives the same
bytes. The Java twin is ``org.mpca.wire.Order``; both travel as msgpack maps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import msgpack

from mpca.wire.agent_ref import AgentId, AgentRef, OfAgent

__all__ = [
    "BY_UPDATES",
    "DEADLINE",
    "DIED",
    "EQUAL",
    "FORGOTTEN",
    "GONE",
    "NEVER",
    "NO_BASE",
    "NO_SUCH_INCARNATION",
    "Answer",
    "BaseInFull",
    "Carried",
    "Coded",
    "Cut",
    "Download",
    "Freeze",
    "Frozen",
    "Late",
    "LateCode",
    "Order",
    "Part",
    "ReadersOrder",
    "Rediscovered",
    "Reduce",
    "Save",
    "StopAgent",
]


class LateCode(IntEnum):
    """Why an executor answers without an agent. Codes travel and are never reused; the twin of ``org.mpca.wire.Late``."""

    NO_SUCH_INCARNATION = 1
    DEADLINE = 2
    DIED = 3
    FORGOTTEN = 4
    OLDER_DRIVER = 5
    NO_BASE = 6


#: The process of the agent is not there any more.
GONE = (LateCode.NO_SUCH_INCARNATION, LateCode.DIED)


class Late(NamedTuple):
    code: LateCode
    text: str  # for records and people


NO_SUCH_INCARNATION = Late(LateCode.NO_SUCH_INCARNATION, "no such incarnation")
DEADLINE = Late(LateCode.DEADLINE, "no answer before the deadline")
DIED = Late(LateCode.DIED, "ended before it handed over")
FORGOTTEN = Late(LateCode.FORGOTTEN, "its cycle was forgotten")
NO_BASE = Late(LateCode.NO_BASE, "its executor waits for the base of the codec")

#: A cycle before all cycles.
NEVER = -(1 << 30)

#: How much a snapshot counts in a sum (`Freeze.weights`): by its updates (eq. 9), or all that have any alike.
BY_UPDATES, EQUAL = "updates", "equal"


@dataclass(frozen=True, slots=True)
class Coded:
    """What of a shard travels is a difference from this base, encoded (`algorithm.codecs`), and not float32.

    The base has the shard's number and the order's term (`algorithm.bases.Base`).
    """

    codec: str  # of parts and broadcasts; that of sums follows from it
    version: int  # of the base
    crc: int  # CRC-32 of the base
    parameters: int  # of the shard; the elements behind them are buffers
    length: int  # bytes of the base, float32


class BaseInFull(NamedTuple):
    """A base that executors without any of its shard fetch from the driver, in the background."""

    shard: int
    version: int
    crc: int
    length: int  # bytes


class Carried(NamedTuple):
    """The newest cycle whose sum the driver took with this executor's part; of the shard that the order freezes."""

    executor: str
    cycle: int


@dataclass(frozen=True, slots=True)
class Part:
    """One executor's part of a sum: the weighted mean of its own agents' frozen shard."""

    executor: str
    weight: float  # sum over its agents (float64) of `Freeze.weight`; 1.0 when x_0 is read


@dataclass(frozen=True, slots=True)
class Reduce:
    """R = sum_e (weight_e / sum weight) * part_e, parts added in the order given, float32 with float64 weights."""

    cycle: int
    shard: int
    length: int  # bytes
    parts: list[Part]
    coded: Coded | None = None  # as in the freeze of this cycle; then the sum is of differences
    after: int = NEVER  # the newest order of the shard whose sum the driver took: what its rounding left is added


@dataclass(frozen=True, slots=True)
class Freeze:
    """Take the snapshots of (cycle, shard) from these agents; an agent without an answer by the deadline is late."""

    cycle: int
    shard: int
    agents: list[AgentRef]
    weights: str = BY_UPDATES  # how much a snapshot counts in the sum
    coded: Coded | None = None  # executors without this base answer `NO_BASE`, ask no agent, and fetch it
    #: What becomes of that which rounding leaves of an executor's part: "dropped", since agents still have it; "answered",
    #: handed to them with the next joint state; "carried", added to the executor's next part.
    rests: str = "dropped"

    def weight(self, tau: int) -> float:
        """Of a snapshot after `tau` updates; 0 after none, however snapshots count."""
        return float(tau if self.weights == BY_UPDATES else min(tau, 1))


@dataclass(frozen=True, slots=True)
class Download:
    """A broadcast to fetch in the background, and to give to agents between two of their batches."""

    broadcast: int  # id, from Cluster.publish
    shard: int
    version: int
    mode: str  # "install" | "replace"
    length: int  # bytes
    agents: list[AgentRef]
    alpha: float = 0.0  # for Install: strength of the pull towards it
    #: An executor without this base fetches the result in full; of what is to replace a model, the base.
    coded: Coded | None = None
    #: CRC-32 of the vector that agents get. That is the base (version, crc) from now on, unless `mode` is "replace" and `coded`
    #: is there. 0: float32 that is no base.
    result: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """These agents, which have not begun, cut the model into another number of shards and say Hello anew."""

    shards: int
    agents: list[AgentRef]


@dataclass(frozen=True, slots=True)
class Save:
    """These agents copy what is their own between two batches; their executors then write it to files, in the background.

    The task waits for neither. What becomes of each file is an event, `AgentSaved`.
    """

    number: int
    agents: list[AgentRef]
    urls: list[str]  # of each agent's file, for Hadoop's client


@dataclass(frozen=True, slots=True)
class ReadersOrder:
    """The agents that read the data, for agents that have not received this version."""

    version: int
    readers: dict[str, Any]  # data.plan.Readers.to_dict()
    agents: list[AgentRef]


class StopAgent(NamedTuple):
    """An agent that is to finish, and why; in an order it is ``[executor, agent, incarnation, reason]``."""

    executor: str
    agent: int
    incarnation: int
    reason: str

    @property
    def id(self) -> AgentId:
        """The process, wherever it runs."""
        return AgentId(self.agent, self.incarnation)


@dataclass(frozen=True, slots=True)
class Order:
    order: int  # serial number of the job, never reused in a run
    run: str
    term: int  # of the driver, one more at each attempt; an executor obeys the newest
    cycle: int
    deadline: float  # seconds of the driver's monotonic clock; every wait on an executor ends before it
    executors: list[str]  # one task on each, in this sequence
    description: str = ""  # what the Spark UI shows
    begin: list[AgentRef] = field(default_factory=list)
    stop: list[StopAgent] = field(default_factory=list)
    forget_cycle: int = NEVER  # yields and chunks of this cycle and before are dropped
    forget_broadcasts: list[int] = field(default_factory=list)
    downloads: list[Download] = field(default_factory=list)
    reduce: Reduce | None = None
    freeze: Freeze | None = None
    readers: ReadersOrder | None = None
    cut: Cut | None = None
    save: Save | None = None
    carried: list[Carried] = field(default_factory=list)  # with `Freeze.rests` "carried"
    bases: list[BaseInFull] = field(default_factory=list)

    def pack(self) -> bytes:
        packed: bytes = msgpack.packb(asdict(self), use_bin_type=True)
        return packed


@dataclass(frozen=True, slots=True)
class Frozen(OfAgent):
    """One agent's frozen snapshot."""

    agent: int
    incarnation: int
    tau: int
    crc: int  # CRC-32 of the shard's float32 bytes, little-endian
    finite: bool
    #: Euclidean distance from the newest joint state that its executor had handed the agent, from x_0 before the first: what
    #: a contribution has moved. NaN if not finite.
    distance: float
    start: float  # of the interruption, in seconds of the driver's monotonic clock
    end: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one executor's task.

    `weight` is the sum of the weights (`Freeze.weight`) of the finite yields that its part holds; `late` says why an expected
    agent is not in it.
    """

    executor: str
    host: str
    frozen: list[Frozen]
    late: dict[int, Late]  # by agent
    weight: float
    reduce_start: float  # seconds of the driver's monotonic clock; 0 when the order had no reduce
    reduce_end: float
    bytes_in: int  # bytes this executor fetched for the reduction
    bytes_out: int  # bytes that it sent to the driver for the reduction

    @classmethod
    def unpack(cls, data: bytes) -> Answer:
        fields = msgpack.unpackb(data, raw=False, strict_map_key=False)
        fields["frozen"] = [Frozen(**one) for one in fields["frozen"]]
        fields["late"] = {int(agent): Late(LateCode(code), text) for agent, (code, text) in fields["late"].items()}
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Rediscovered(OfAgent):
    """A living agent, from its executor's registry."""

    agent: int
    incarnation: int
    pid: int
