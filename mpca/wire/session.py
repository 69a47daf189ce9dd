"""The order of messages on the pipe between an executor and its agent. No bytes, no clock, no I/O.

There are two roles, EXECUTOR and AGENT. Each end keeps one `Session` of its role, which checks every message that the end sends
or receives. It keeps the agent's state from this end's point of view, so the two ends may differ while messages cross:

    STARTING   the process was started; it knows nothing
    LOADING    Start was sent: the user's function runs, `attach` has not been called
    WAITING    Hello was sent: x_0 is known, the first step is not allowed yet; a Cut leads back to LOADING
    TRAINING   Begin was sent
    STOPPING   Stop was sent: the agent ends when its function returns; it still answers
    CLOSED     Finished or Failed was sent, the agent's last message

Messages can come out of order. The executor may send SnapshotRequest, Install and Stop before it has read the agent's last
message: an agent that is CLOSED drops what it receives. Stop may cross Hello. Begin and Stop may come twice (with an order that
was submitted again). SnapshotRequest and Install may come in WAITING: x_0 is read, and an agent that joins gets its state.
ReadersChanged comes whenever agents were lost or joined, and before the Begin of an agent that joins; it needs no answer. Files
comes when the agent opens a data set on HDFS; Fetch and Fetched use the pipes that Files names, in turn, and have no session.
Exchange comes only while the agent trains, so it may cross Stop. SaveState comes after Begin; the agent answers each with one
StateSaved, and keeps the memory that this names until StateTaken.

Beside the table each end keeps the open requests: one SnapshotRequest at a time and one Install per shard, each answered by the
Snapshot or Installed of the same numbers. The answer frees the slot, so an answer without a request would free a slot that the
other end is writing to.

An Exchange takes the snapshot slot until an Install of its shard comes, or Stop. Meanwhile the agent sends no Snapshot (a
SnapshotRequest waits) and no second Exchange. An Install of that shard that was under way when the Exchange was sent, or was
not read yet, ends it too, since the agent cannot tell it from the answer.

An illegal message raises and changes nothing: `LocalProtocolError` when this end sent it, `RemoteProtocolError` when the
peer did.
"""

from __future__ import annotations

from mpca.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from mpca.wire.messages import (
    Begin,
    Cut,
    Exchange,
    Failed,
    Fetched,
    Files,
    Finished,
    Hello,
    Install,
    Installed,
    Message,
    Progress,
    ReadersChanged,
    SaveState,
    Snapshot,
    SnapshotRequest,
    Start,
    StateSaved,
    StateTaken,
    Stop,
)

__all__ = [
    "AGENT",
    "CLOSED",
    "EXECUTOR",
    "LOADING",
    "STARTING",
    "STOPPING",
    "TRAINING",
    "TRANSITIONS",
    "WAITING",
    "Session",
]

EXECUTOR, AGENT = "EXECUTOR", "AGENT"
STARTING, LOADING, WAITING, TRAINING, STOPPING, CLOSED = (
    "STARTING", "LOADING", "WAITING", "TRAINING", "STOPPING", "CLOSED",
)  # fmt: skip

_ENDINGS = {Finished: CLOSED, Failed: CLOSED}
#: May come at any time between Hello and the last message, and leave the state as it is.
_ANY_TIME = (ReadersChanged, Files, SnapshotRequest, Snapshot, Install, Installed, Progress)
#: May come once the agent has begun, and leave the state as it is.
_SAVING = (SaveState, StateSaved, StateTaken)
#: State -> message -> next state, as both roles see it.
_BOTH: dict[str, dict[type[Message], str]] = {
    STARTING: {Start: LOADING, Failed: CLOSED},
    LOADING: {Hello: WAITING, Stop: STOPPING, Progress: LOADING, Files: LOADING, **_ENDINGS},
    WAITING: {Begin: TRAINING, Cut: LOADING, Stop: STOPPING, **dict.fromkeys(_ANY_TIME, WAITING), **_ENDINGS},
    TRAINING: {Begin: TRAINING, Stop: STOPPING, **dict.fromkeys((*_ANY_TIME, *_SAVING), TRAINING), **_ENDINGS},
    STOPPING: {Begin: STOPPING, Stop: STOPPING, **dict.fromkeys((*_ANY_TIME, *_SAVING), STOPPING), **_ENDINGS},
}

#: Role -> state -> message -> next state, for the messages that the role sends and for those that it receives.
TRANSITIONS: dict[str, dict[str, dict[type[Message], str]]] = {
    EXECUTOR: {
        **_BOTH,
        TRAINING: {**_BOTH[TRAINING], Exchange: TRAINING},
        STOPPING: {**_BOTH[STOPPING], Hello: STOPPING, Exchange: STOPPING},  # sent before Stop was read
        CLOSED: {},
    },
    AGENT: {
        **_BOTH,
        TRAINING: {**_BOTH[TRAINING], Exchange: TRAINING},
        STOPPING: {**_BOTH[STOPPING], Hello: STOPPING},  # Stop was read together with the Cut that this answers
        # The executor sent these before it read the agent's last message; nothing acts on them.
        CLOSED: dict.fromkeys((Begin, Cut, SnapshotRequest, Install, ReadersChanged, SaveState, StateTaken, Stop), CLOSED),
    },
}

_SENT_BY_EXECUTOR = frozenset(
    {Start, Begin, Cut, SnapshotRequest, Install, ReadersChanged, SaveState, StateTaken, Fetched, Stop}
)


class Session:
    """One end's view of the messages with one agent."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.state = STARTING
        self._table = TRANSITIONS[role]
        self._request: tuple[int, int] | None = None  # (cycle, shard) asked and not answered
        self._offers: dict[int, tuple[int, str]] = {}  # shard -> (version, mode) offered and not answered
        self._exchanges = 0  # number of the newest
        self._asking: int | None = None  # shard of the Exchange whose Install has not come
        self._saves: dict[int, bool] = {}  # number of a SaveState -> whether it was answered; until StateTaken, or an error
        self._saved = 0  # number of the newest SaveState

    def sending(self, message: Message) -> None:
        """Check a message before this end sends it.

        Raises:
            LocalProtocolError: the message is not allowed now.
        """
        if (type(message) in _SENT_BY_EXECUTOR) != (self.role == EXECUTOR):
            raise LocalProtocolError(f"{self.role} does not send {type(message).__name__}")
        self._move(message, LocalProtocolError)

    def received(self, message: Message) -> None:
        """Check a message that has come from the peer.

        Raises:
            RemoteProtocolError: the peer was not allowed to send it now.
        """
        if (type(message) in _SENT_BY_EXECUTOR) == (self.role == EXECUTOR):
            raise RemoteProtocolError(f"{self.role} does not receive {type(message).__name__}")
        self._move(message, RemoteProtocolError)

    def _move(self, message: Message, error: type[ProtocolError]) -> None:
        after = self._table[self.state].get(type(message))
        if after is None:
            raise error(f"{type(message).__name__} is illegal here: role={self.role}, state={self.state}")
        if self.state != CLOSED:
            self._settle(message, error)
        self.state = after

    def _settle(self, message: Message, error: type[ProtocolError]) -> None:
        """Keep the open requests: every answer needs its request, and a slot has one owner."""
        if isinstance(message, SnapshotRequest):
            if self._request is not None:
                raise error(f"a second SnapshotRequest while one is unanswered: role={self.role}, open={self._request}")
            self._request = (message.cycle, message.shard)
        elif isinstance(message, Cut):
            if self._request is not None or self._offers:
                raise error(f"Cut while the agent owes an answer: role={self.role}, open={self._request or self._offers}")
        elif isinstance(message, Snapshot):
            if self._asking is not None:
                raise error(f"Snapshot while an Exchange has the slot: role={self.role}, shard={self._asking}")
            if self._request != (message.cycle, message.shard):
                raise error(
                    f"Snapshot without its SnapshotRequest: role={self.role}, cycle={message.cycle}, shard={message.shard}, "
                    f"open={self._request}"
                )
            self._request = None
        elif isinstance(message, Install):
            if message.shard in self._offers:
                raise error(
                    f"a second Install of a shard whose slot is taken: role={self.role}, shard={message.shard}, "
                    f"version={message.version}, open={self._offers[message.shard]}"
                )
            self._offers[message.shard] = (message.version, message.mode)
            if self._asking == message.shard:
                self._asking = None
        elif isinstance(message, Exchange):
            if self._asking is not None:
                raise error(f"a second Exchange while one is unanswered: role={self.role}, shard={self._asking}")
            if message.number != self._exchanges + 1:
                raise error(f"Exchange out of turn: role={self.role}, number={message.number}, last={self._exchanges}")
            self._exchanges = message.number
            crossed = self.state == STOPPING or message.shard in self._offers
            self._asking = None if crossed else message.shard
        elif isinstance(message, Stop):
            self._asking = None
        elif isinstance(message, SaveState):
            if message.number <= self._saved:
                raise error(f"SaveState out of turn: role={self.role}, number={message.number}, last={self._saved}")
            self._saved, self._saves[message.number] = message.number, False
        elif isinstance(message, StateSaved):
            if self._saves.get(message.number) is not False:
                raise error(f"StateSaved without its SaveState: role={self.role}, number={message.number}")
            self._saves[message.number] = True
            if message.error:
                del self._saves[message.number]
        elif isinstance(message, StateTaken):
            if not self._saves.pop(message.number, False):
                raise error(f"StateTaken of what was not saved: role={self.role}, number={message.number}")
        elif isinstance(message, Installed):
            if self._offers.get(message.shard) != (message.version, message.mode):
                raise error(
                    f"Installed without its Install: role={self.role}, shard={message.shard}, version={message.version}, "
                    f"mode={message.mode}, open={self._offers.get(message.shard)}"
                )
            del self._offers[message.shard]
