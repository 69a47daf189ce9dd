"""Control messages between an executor's JVM and its agent, one frozen dataclass each.

The executor writes to the agent's stdin, the agent to its stdout (both moved to other descriptors before user code
runs). A frame is a four-byte big-endian length and a msgpack array ``[code, {field: value}]``; `codec.py` does that.
Bulk never travels here: a message names a slot of the mapped segment (`slots.py`). The Java twin is
``org.mpca.wire.Message``; both read the same bytes from ``tests/golden/wire/``.

What can be out of order: an Install may arrive while the agent is asked for a SnapshotRequest (the method says which goes
first); a SnapshotRequest may be asked before Begin (the reading of x_0); Stop may come at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "CODES",
    "ENDED",
    "LEFT",
    "LOOP",
    "OVERRUN",
    "RETURNED",
    "Begin",
    "Failed",
    "Fetch",
    "Fetched",
    "Files",
    "Finished",
    "Hello",
    "Install",
    "Installed",
    "Members",
    "Message",
    "Progress",
    "Snapshot",
    "SnapshotRequest",
    "Start",
    "Stop",
]


#: Where a train function is, as its agent knows it (`Progress.function`).
LOOP = "loop"  # trains; or is behind a loop that ended by itself, which nobody tells the agent
OVERRUN = "overrun"  # has made more than one update since the agent was told to stop
LEFT = "left"  # knows that it is to stop, by its iterator's end or `mpca.stopping()`, and has made no update since
RETURNED = "returned"  # the agent can still be read, and ends when it is told Stop
ENDED = "ended"  # Finished or Failed follows


@dataclass(frozen=True, slots=True)
class Message:
    """Base of all messages."""


# ---- executor to agent ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start(Message):
    """First message: who the agent is and what it is to do."""

    agent: int
    incarnation: int
    agents: int  # how many the run wants
    run: str
    seed: int
    shards: int
    layer_aligned: bool
    method: dict[str, Any]  # Method.to_dict(): name and its numbers
    task: str  # "train"
    payload: bytes  # cloudpickle of (function, args, kwargs)
    device: str = "cpu"  # "cpu", "cuda": the one GPU that the agent sees
    threads: int = 1  # torch.set_num_threads
    conf: dict[str, Any] = field(default_factory=dict)  # resolved configuration, for mpca.dataset() and built-in trainers


@dataclass(frozen=True, slots=True)
class Begin(Message):
    """x_0 is agreed: the first step may be taken."""


@dataclass(frozen=True, slots=True)
class SnapshotRequest(Message):
    """Interrupt between two batches and publish one shard into the snapshot slot."""

    cycle: int
    shard: int


@dataclass(frozen=True, slots=True)
class Install(Message):
    """The arrival slot of `shard` holds a joint state; read it between two batches, then say Installed."""

    shard: int
    version: int  # exchange number of this shard, 1 for the first
    mode: str  # "install": what the method does with an arrival; "replace": take it as one's own (x_0, joiners)
    alpha: float = 0.0  # strength of the pull towards it, before every gradient; 0: none


@dataclass(frozen=True, slots=True)
class Members(Message):
    """Who reads the data from now on; the newest version counts. Before Begin, and when agents were lost or joined."""

    version: int
    members: dict[str, Any]  # data.plan.Membership.to_dict()


@dataclass(frozen=True, slots=True)
class Stop(Message):
    """Finish: the data iterator ends and `mpca.stopping()` becomes true. An agent that is leaving says Finished."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fetched(Message):
    """Answer to a Fetch, on the agent's pipe for answers. Number 0 comes first: the pipes are open."""

    number: int
    bytes: int  # so many lie in the memory; fewer than asked for at the end of the file
    error: str  # class of the exception; empty when all is well
    text: str  # ... and what it says


# ---- agent to executor ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello(Message):
    """`attach` was called: what is trained, a hash of x_0, and where the mapped segment is.

    The segment is a memfd of the agent, which the executor opens as ``/proc/<pid>/fd/<segment_fd>``: it has no name,
    so nothing is left behind whoever is killed, and it is not bounded by the size of /dev/shm.
    """

    agent: int
    incarnation: int
    pid: int
    python: str
    torch: str
    mpca: str
    x0_hash: str  # sha256 hex of the flat vector, float buffers included
    #: [[name, shape, kind, offset], ...]; kind "parameter" or "buffer"; offset in elements. A fifth value where elements are
    #: not in row order: the dimensions from the slowest in memory to the fastest.
    layout: list[list[Any]]
    local: dict[str, Any]  # what stays local but belongs to a state_dict: {name: [dtype, shape, number of bytes]}
    tied: dict[str, str]  # {alias: name} of tied tensors
    #: Shard edges in elements of the flat vector, S + 1 of them. With local tensors one more: they lie behind it as shard S,
    #: which is read and replaced like another but never averaged, in 16-bit words (`storage.words`).
    bounds: list[int]
    parameters: int  # elements of the flat vector that are parameters; the rest are float buffers
    segment_fd: int
    segment_bytes: int
    slots: list[int]  # byte offset of each slot in the segment: [snapshot, arrival of shard 0, ...]


@dataclass(frozen=True, slots=True)
class Snapshot(Message):
    """The snapshot slot holds `shard` for `cycle`; the executor reads it before it asks for the next."""

    cycle: int
    shard: int
    updates: int  # tau: optimiser updates completed since the last snapshot of this shard
    start: float  # seconds of the machine's monotonic clock: the interruption began
    end: float  # ... and training went on


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
    """At most twice a second, when the function leaves its loop, and before Finished. Totals of this incarnation."""

    steps: int
    samples: int
    train_s: float  # seconds since the first step began, pauses included
    pause_s: float  # seconds spent in snapshots and installs
    metrics: dict[str, float]  # newest values of mpca.log
    #: Where it is in the data: epoch, units of its share that are finished, newest epoch begun. Empty when it reads none.
    data: list[int] = field(default_factory=list)
    function: str = LOOP  # where the train function is: LOOP, OVERRUN, LEFT, RETURNED or ENDED
    bad: list[list[str]] = field(default_factory=list)  # [[record, reason], ...] that could not be used, new ones, at most 100
    bad_dropped: int = 0  # bad records that there was no room to name, in all


@dataclass(frozen=True, slots=True)
class Finished(Message):
    """The train function returned."""

    returns: bytes  # cloudpickle of its value


@dataclass(frozen=True, slots=True)
class Failed(Message):
    """The user's code raised. The run ends with this traceback."""

    error: str  # "ValueError: ..."
    traceback: str


@dataclass(frozen=True, slots=True)
class Files(Message):
    """The agent wants files of the cluster read: by requests on a pipe of its own, into memory of its own.

    Both pipes and the memory are opened through ``/proc/<pid>/fd``, as the segment is; so nothing is left of them whoever
    is killed, orders never wait for a file, and the end of the one side is an end of file for the other.
    """

    pid: int
    requests_fd: int  # end to read from: Fetch
    answers_fd: int  # end to write to: Fetched
    memory_fd: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Fetch(Message):
    """Read a range of a file into the memory, from its beginning on. On the pipe that Files has named."""

    number: int  # from 1; answered in order
    url: str
    offset: int
    bytes: int  # at most those of the memory


#: Codes travel; they are never reused. Executor to agent from 1, agent to executor from 17.
CODES: dict[int, type[Message]] = {
    1: Start,
    2: Begin,
    3: SnapshotRequest,
    4: Install,
    5: Stop,
    6: Members,
    7: Fetched,
    17: Hello,
    18: Snapshot,
    19: Installed,
    20: Progress,
    21: Finished,
    22: Failed,
    23: Files,
    24: Fetch,
}
