"""Control messages between an executor's JVM and its agent, one frozen dataclass each.

The executor writes to the agent's stdin, the agent to its stdout (both moved to other descriptors before user code
runs). A frame is a four-byte big-endian length and a msgpack array ``[code, {field: value}]``; `codec.py` does that.
Parameters never travel here: a message names a slot of the mapped segment (`slots.py`). The Java twin is
``org.mpca.wire.Message``; both read the same bytes from ``tests/golden/wire/``.

Messages can come out of order: an Install may arrive together with a SnapshotRequest (the method decides which goes first); a
SnapshotRequest may come before Begin (to read x_0); Stop may come at any time, behind a Cut too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from mpca.wire.agent_ref import OfAgent

__all__ = [
    "CODES",
    "ENDED",
    "LEFT",
    "LOOP",
    "OVERRUN",
    "RETURNED",
    "Begin",
    "Cut",
    "Exchange",
    "Failed",
    "Fetch",
    "Fetched",
    "Files",
    "Finished",
    "Hello",
    "Install",
    "Installed",
    "Message",
    "Progress",
    "ReadersChanged",
    "SaveState",
    "Snapshot",
    "SnapshotRequest",
    "Start",
    "StateSaved",
    "StateTaken",
    "Stop",
    "metrics_every_s",
]


#: Where a train function is, as its agent knows it (`Progress.function`).
LOOP = "loop"  # it trains, or its loop has ended by itself, which the agent cannot see
OVERRUN = "overrun"  # it has made more than one update since Stop came
LEFT = "left"  # it knows of Stop, by its iterator's end or `mpca.stopping()`, and has made no update since
RETURNED = "returned"  # it has returned; the agent can still be read, and ends at Stop
ENDED = "ended"  # Finished or Failed follows


def metrics_every_s(trained_s: float) -> float:
    """Seconds between two reports of an agent's metrics: one, and more in a long run, so that a week brings 22,000 at most.

    Args:
        trained_s: since its first step began.

    Example:
        >>> [metrics_every_s(trained_s) for trained_s in (60.0, 36_000.0)]
        [1.0, 10.0]
    """
    return max(1.0, trained_s / 3600)


@dataclass(frozen=True, slots=True)
class Message:
    """Base of all messages."""


# ---- executor to agent ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start(Message):
    """First message: the agent's identity and its task."""

    agent: int
    incarnation: int
    agents: int  # number of agents that the run wants
    run: str
    seed: int
    shards: int
    layer_aligned: bool
    method: dict[str, Any]  # Method.for_agents(): name and its numbers, but alpha, which comes with every Install
    task: str  # "train"
    payload: bytes  # cloudpickle of (function, args, kwargs)
    device: str = "cpu"  # "cpu", "cuda": the one GPU that the agent sees
    threads: int = 1  # torch.set_num_threads
    conf: dict[str, Any] = field(default_factory=dict)  # what agents read of the configuration: [data], for mpca.dataset()
    #: The file with which it goes on where it was: url, bytes, sha256. Empty: it begins at the joint model, or at x_0.
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Begin(Message):
    """x_0 is agreed: the first step may be taken."""


@dataclass(frozen=True, slots=True)
class SnapshotRequest(Message):
    """Publish one shard into the snapshot slot, between two batches."""

    cycle: int
    shard: int


@dataclass(frozen=True, slots=True)
class Install(Message):
    """The arrival slot of `shard` holds a joint state. Read it between two batches, then send Installed."""

    shard: int
    version: int  # exchange number of this shard, 1 for the first
    mode: str  # "install": apply it by the method's rule; "replace": take it as the agent's parameters (x_0, agents that join)
    alpha: float = 0.0  # strength of the pull towards it, before every gradient; 0: none; of an answer to Exchange, its share


@dataclass(frozen=True, slots=True)
class ReadersChanged(Message):
    """The agents that read the data from now on; the newest version counts. Sent before Begin, and after losses and joins."""

    version: int
    readers: dict[str, Any]  # data.plan.Readers.to_dict()


@dataclass(frozen=True, slots=True)
class Stop(Message):
    """End: the data iterator ends and `mpca.stopping()` becomes true. An agent in LEAVING sends Finished."""

    reason: str


@dataclass(frozen=True, slots=True)
class Cut(Message):
    """Before Begin: cut the model into so many shards, in place of `Start.shards`, and say Hello anew, with a new segment."""

    shards: int


@dataclass(frozen=True, slots=True)
class SaveState(Message):
    """Copy all that is this agent's own (`agent.own_state`) into memory, and train on; answer StateSaved at the next update."""

    number: int  # from 1, rising; a repeated one is not answered again


@dataclass(frozen=True, slots=True)
class StateTaken(Message):
    """The memory that StateSaved named is open here: the agent may close it."""

    number: int


@dataclass(frozen=True, slots=True)
class Fetched(Message):
    """Answer to a Fetch, on the agent's pipe for answers. Number 0 comes first: the pipes are open."""

    number: int
    bytes: int  # number of bytes in the memory; fewer than requested at the end of the file
    error: str  # class of the exception; empty without an error
    text: str  # message of the exception


# ---- agent to executor ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello(OfAgent, Message):
    """`attach` was called: the model's layout, a hash of x_0, and the mapped segment.

    The segment is a memfd of the agent, which the executor opens as ``/proc/<pid>/fd/<segment_fd>``. It has no name, so nothing
    is left when a process is killed; and the size of /dev/shm does not limit it.
    """

    agent: int
    incarnation: int
    pid: int
    python: str
    torch: str
    mpca: str
    x0_hash: str  # sha256 hex of the flat vector, float buffers included
    #: [[name, shape, kind, offset], ...]; kind "parameter", "buffer" or "updater" (an optimiser's state, with the name
    #: PARAMETER/KEY); offset in elements. A fifth value, if elements are not in row order: the dimensions from the slowest in
    #: memory to the fastest.
    layout: list[list[Any]]
    local: dict[str, Any]  # local tensors of the state_dict: {name: [dtype, shape, number of bytes]}
    tied: dict[str, str]  # {alias: name} of tied tensors
    #: S + 1 shard edges, in elements of the flat vector. Local tensors add more edges: they are further shards, in 16-bit words
    #: (`storage.words`), which are read and replaced like others but never averaged.
    bounds: list[int]
    parameters: int  # elements of the flat vector that are parameters; the rest are float buffers, and optimisers' state
    segment_fd: int
    segment_bytes: int
    slots: list[int]  # byte offset of each slot in the segment: [snapshot, arrival of shard 0, ...]

    @property
    def shards(self) -> int:
        """Into how many shards the model is cut; those of local tensors are not counted."""
        end: int = sum(prod(row[1]) for row in self.layout)
        return sum(edge <= end for edge in self.bounds) - 1


@dataclass(frozen=True, slots=True)
class Snapshot(Message):
    """The snapshot slot holds `shard` for `cycle`. The executor reads it before its next request."""

    cycle: int
    shard: int
    updates: int  # tau: optimiser updates completed since the last snapshot of this shard
    start: float  # seconds of the machine's monotonic clock: the interruption began
    end: float  # the same: training continued


@dataclass(frozen=True, slots=True)
class Exchange(Message):
    """The snapshot slot holds `shard` for the server, and the agent waits for its answer: an Install of that shard.

    Only agents of a method that `asks` send it. Until the Install has come, the agent answers no SnapshotRequest. The slot's
    header has `number` as its version.
    """

    number: int  # exchanges of this incarnation, from 1
    shard: int
    updates: int  # tau: optimiser updates since the last exchange of this shard
    version: int  # of the joint state of this shard that the agent installed last; the server counts staleness from it
    start: float  # seconds of the machine's monotonic clock: the interruption began
    end: float  # the same: the slot was filled


@dataclass(frozen=True, slots=True)
class Installed(Message):
    """The arrival slot of `shard` was read and may be written again."""

    shard: int
    version: int
    mode: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Progress(Message):
    """Totals of this incarnation. Sent at most twice a second, when the function leaves its loop, and before Finished."""

    steps: int
    samples: int
    train_s: float  # seconds since the first step began, pauses included
    pause_s: float  # seconds spent in snapshots and installs
    #: Means of what mpca.log was given since they were sent last; sent every `metrics_every_s`, and at the end. Else empty.
    metrics: dict[str, float]
    #: Position in the data: epoch, finished units of its share, newest epoch begun. Empty for an agent that reads none.
    data: list[int] = field(default_factory=list)
    function: str = LOOP  # where the train function is: LOOP, OVERRUN, LEFT, RETURNED or ENDED
    bad: list[list[str]] = field(default_factory=list)  # [[record, reason], ...] of new bad records, at most 100
    bad_dropped: int = 0  # total of bad records whose names found no room


@dataclass(frozen=True, slots=True)
class Finished(Message):
    """The train function returned."""

    returns: bytes  # its value as agent/returned.py packs it: data, and no code


@dataclass(frozen=True, slots=True)
class Failed(Message):
    """The user's code raised. The run ends with this traceback."""

    error: str  # "ValueError: ..."
    traceback: str


@dataclass(frozen=True, slots=True)
class Files(Message):
    """The agent wants to read files of HDFS: it has pipes for requests and answers, and memory for the data.

    The executor opens pipes and memory through ``/proc/<pid>/fd``, as the segment. So nothing is left when a process is killed,
    orders never wait for a file, and each side sees an end of file when the other ends.
    """

    pid: int
    requests_fd: int  # the executor reads Fetch here
    answers_fd: int  # the executor writes Fetched here
    memory_fd: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Fetch(Message):
    """Read a range of a file to the beginning of the memory. Sent on the pipe that Files names."""

    number: int  # from 1; answered in order
    url: str
    offset: int
    bytes: int  # at most the size of the memory


@dataclass(frozen=True, slots=True)
class StateSaved(Message):
    """The state that SaveState asked for lies in a memfd, which the executor opens as the segment and writes to storage."""

    number: int
    fd: int  # -1 with an error
    bytes: int
    sha256: str  # hex
    error: str  # why there is none; empty without an error


#: Codes travel; they are never reused. Executor to agent from 1, agent to executor from 17.
CODES: dict[int, type[Message]] = {
    1: Start,
    2: Begin,
    3: SnapshotRequest,
    4: Install,
    5: Stop,
    6: ReadersChanged,
    7: Fetched,
    8: Cut,
    9: SaveState,
    10: StateTaken,
    17: Hello,
    18: Snapshot,
    19: Installed,
    20: Progress,
    21: Finished,
    22: Failed,
    23: Files,
    24: Fetch,
    25: Exchange,
    26: StateSaved,
}
