"""What one executor knows of the yields and arrivals of its agents, and what it decides: the Python twin of
``org.mpca.agent.ExecutorState``. Events in, instructions out; no I/O, no clock, no bytes.

Both run one set of scripts, ``tests/golden/executor``, so a rule that changes here must change there.

*Yields.* A yield, of one agent for one cycle, goes through these states::

    MADE ----freeze----> ASKED ----snapshot----> FROZEN      read again: the same values, no second interruption
      |                    |
      |                    +--deadline, agent_gone, forget--> CLOSED, with a reason
      +----freeze, but no such incarnation------------------> CLOSED

    CLOSED ---freeze again, of an agent that lives---> ASKED

An agent has at most one interruption outstanding. A second yield of the same agent waits until the agent has answered the
first, even if the first is closed by then: its late bytes are discarded, and the agent is back. When the driver asks again for
a cycle (it paused, or submitted an order again), a closed yield opens again: only an accepted yield is final. A frozen yield
counts whatever becomes of its agent. A freeze is answered as soon as each of its yields is frozen or closed. A yield that is
forgotten while it is only MADE was never read; the number of such yields is reported.

*Arrivals.* The slot of one shard of one agent is free, or it is offered: from its writing until the agent's Installed. An
arrival at an offered slot waits for the slot, and a newer arrival supersedes it. The executor acknowledges every arrival that
it holds for the agent, and every arrival that came too late to be of use. An
answer to an Exchange is never too late: the agent waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mpca.wire.agent_ref import AgentId
from mpca.wire.orders import DEADLINE, DIED, FORGOTTEN, NO_SUCH_INCARNATION, Late

__all__ = [
    "Acknowledge",
    "Answered",
    "Back",
    "Discard",
    "Drop",
    "ExecutorState",
    "Interrupt",
    "Supersede",
    "Taken",
    "Write",
]

MADE, ASKED, FROZEN, CLOSED = "MADE", "ASKED", "FROZEN", "CLOSED"


class Taken(NamedTuple):
    """A frozen yield, without its bytes."""

    agent: int
    incarnation: int
    tau: int
    crc: int
    finite: bool

    @property
    def id(self) -> AgentId:
        """Whose it is."""
        return AgentId(self.agent, self.incarnation)


class Interrupt(NamedTuple):
    """Send the agent a SnapshotRequest."""

    agent: int
    cycle: int
    shard: int


class Answered(NamedTuple):
    """A freeze is complete; `frozen` and `late` are in agent order."""

    ticket: int
    cycle: int
    shard: int
    frozen: list[Taken]
    late: dict[int, Late]


class Back(NamedTuple):
    """A late agent answered after all: tell the driver."""

    agent: int
    incarnation: int


class Discard(NamedTuple):
    """Drop the bytes of a snapshot that no freeze waits for."""

    agent: int
    cycle: int
    shard: int


class Write(NamedTuple):
    """Put an arrival into its slot and send Install."""

    agent: int
    shard: int
    version: int
    mode: str
    arrival: Any = None  # what was offered


class Supersede(NamedTuple):
    """A newer arrival made this one useless."""

    agent: int
    shard: int
    version: int


class Acknowledge(NamedTuple):
    """The executor has this arrival for the agent."""

    agent: int
    shard: int
    version: int


class Drop(NamedTuple):
    """Drop all yields of a cycle; `unread` of them were never asked for."""

    cycle: int
    unread: int


@dataclass(slots=True)
class _Entry:
    cycle: int
    shard: int
    who: AgentId
    state: str = MADE
    taken: Taken | None = None
    reason: Late | None = None

    def close(self, reason: Late) -> None:
        self.state, self.reason = CLOSED, reason


@dataclass(slots=True)
class _Slot:
    newest: int | None = None
    offered: int | None = None
    waiting: Write | None = None


@dataclass(slots=True)
class _Seat:
    """A living agent."""

    incarnation: int
    outstanding: _Entry | None = None  # the interruption that the agent has not answered yet; may be closed or forgotten
    queue: deque[_Entry] = field(default_factory=deque)
    slots: dict[int, _Slot] = field(default_factory=dict)


@dataclass(slots=True)
class _Request:
    ticket: int
    cycle: int
    shard: int
    entries: list[_Entry]  # by agent


class ExecutorState:
    """See the module's text. Every event returns instructions, in the order in which they must be carried out."""

    def __init__(self) -> None:
        self._seats: dict[int, _Seat] = {}
        self._entries: dict[int, dict[AgentId, _Entry]] = {}  # by cycle
        self._requests: list[_Request] = []

    def agent_up(self, who: AgentId) -> list[Any]:
        """An agent said Hello. An older incarnation of the same agent is gone by that.

        Returns:
            As `agent_gone` for that older incarnation.
        """
        seat = self._seats.get(who.agent)
        if seat is not None and seat.incarnation >= who.incarnation:
            return []
        out = [] if seat is None else self.agent_gone(AgentId(who.agent, seat.incarnation))
        self._seats[who.agent] = _Seat(who.incarnation)
        return out

    def agent_gone(self, who: AgentId) -> list[Any]:
        """The process of an agent ended; everything that it had sent was handled before.

        Returns:
            Answered for each freeze that waited for this agent alone.
        """
        out: list[Any] = []
        if self._seat(who) is None:
            return out
        del self._seats[who.agent]
        for entries in self._entries.values():
            entry = entries.get(who)
            if entry is not None and entry.state == ASKED:
                entry.close(DIED)
        self._answer_settled(out)
        return out

    def made(self, cycle: int, shard: int, who: AgentId) -> list[Any]:
        """A yield was made, without an interruption.

        Raises:
            ValueError: the cycle has another shard.
        """
        self._entry(cycle, shard, who)
        return []

    def freeze(self, ticket: int, cycle: int, shard: int, agents: Iterable[AgentId]) -> list[Any]:
        """Freeze the yields of some agents.

        Args:
            ticket: comes back in Answered.
            cycle: of the yields.
            shard: which one.
            agents: whose.

        Returns:
            Interrupt for each agent that is not interrupted already; Answered when nothing is left to wait for.

        Raises:
            ValueError: the cycle has another shard.
        """
        out: list[Any] = []
        wanted = []
        for who in agents:
            entry = self._entry(cycle, shard, who)
            wanted.append(entry)
            if entry.state in (ASKED, FROZEN):
                continue
            seat = self._seat(who)
            if seat is not None:
                entry.state = ASKED
                if seat.outstanding is not entry:
                    seat.queue.append(entry)
                    self._interrupt_next(seat, out)
            elif entry.state == MADE:
                entry.close(NO_SUCH_INCARNATION)
        wanted.sort(key=lambda entry: entry.who.agent)
        self._requests.append(_Request(ticket, cycle, shard, wanted))
        self._answer_settled(out)
        return out

    def snapshot(self, who: AgentId, cycle: int, shard: int, tau: int, crc: int, finite: bool) -> list[Any]:
        """An agent handed a shard over, and its bytes were read whole.

        Args:
            who: its process.
            cycle: of the yield.
            shard: which one.
            tau: updates since the agent handed the shard over before.
            crc: CRC-32 of the bytes.
            finite: whether every value is.

        Returns:
            Discard when no freeze waits for it, Back when it comes too late; Answered for a freeze that is complete; the next
            Interrupt.
        """
        seat = self._seat(who)
        entry = None if seat is None else seat.outstanding
        if seat is None or entry is None or entry.cycle != cycle or entry.shard != shard:
            return [Discard(who.agent, cycle, shard)]
        out: list[Any] = []
        seat.outstanding = None
        if entry.state == ASKED:
            entry.state = FROZEN
            entry.taken = Taken(*who, tau, crc, finite)
            self._answer_settled(out)
        else:
            out += [Discard(who.agent, cycle, shard), Back(*who)]
        self._interrupt_next(seat, out)
        return out

    def deadline(self, cycle: int) -> list[Any]:
        """The time of a cycle is over: a yield that was not handed over is late, and its bytes will never be accepted.

        Returns:
            Answered for each freeze that waited for such a yield.
        """
        out: list[Any] = []
        self._close_asked(self._entries.get(cycle, {}), DEADLINE)
        self._answer_settled(out)
        return out

    def forget(self, cycle: int) -> list[Any]:
        """No sum needs the yields of this cycle, or of those before it, any more.

        Returns:
            Answered for each freeze that waited for such a yield, and Drop for each cycle.
        """
        out: list[Any] = []
        old = sorted(one for one in self._entries if one <= cycle)
        for one in old:
            self._close_asked(self._entries[one], FORGOTTEN)
        self._answer_settled(out)
        for one in old:
            unread = sum(1 for entry in self._entries.pop(one).values() if entry.state == MADE)
            out.append(Drop(one, unread))
        return out

    def offer(self, who: AgentId, shard: int, version: int, mode: str, arrival: Any = None, answer: bool = False) -> list[Any]:
        """A joint shard was downloaded for an agent.

        Args:
            who: its process.
            shard: which one.
            version: of the joint state.
            mode: "install" or "replace".
            arrival: what was downloaded; it is passed on and not looked at.
            answer: whether it answers an Exchange.

        Returns:
            Write, when the slot is free; Supersede for an arrival that this one replaces, or for this one when it is older;
            Acknowledge. Nothing when no such process lives.
        """
        out: list[Any] = []
        seat, agent = self._seat(who), who.agent
        if seat is None:
            return out
        slot = seat.slots.setdefault(shard, _Slot())
        if slot.newest is not None and version < slot.newest and not answer:
            out.append(Supersede(agent, shard, version))
        elif slot.newest is None or version > slot.newest or mode == "replace" or answer:
            # a replacement is written even if its version is there already: the agent's own state was not finite. So is an
            # answer: the server's state need not have changed since the last one
            slot.newest = version
            if slot.offered is None:
                slot.offered = version
                out.append(Write(agent, shard, version, mode, arrival))
            else:
                if slot.waiting is not None:
                    out.append(Supersede(agent, shard, slot.waiting.version))
                    if slot.waiting.mode == "replace" and not answer:
                        mode = "replace"  # the agent holds its other shards until this one replaces its own too
                slot.waiting = Write(agent, shard, version, mode, arrival)
        out.append(Acknowledge(agent, shard, version))
        return out

    def installed(self, who: AgentId, shard: int, version: int) -> list[Any]:
        """An agent has read the arrival slot of a shard.

        Returns:
            Write for an arrival that waits for the slot.
        """
        seat = self._seat(who)
        slot = None if seat is None else seat.slots.get(shard)
        if slot is None or slot.offered != version:
            return []
        write, slot.waiting = slot.waiting, None
        slot.offered = None if write is None else write.version
        return [] if write is None else [write]

    # ---- questions ---------------------------------------------------------------------------------------------------

    def is_frozen(self, cycle: int, who: AgentId) -> bool:
        """Whether a snapshot of this process was accepted for this cycle: its bytes must be kept."""
        entry = self._entries.get(cycle, {}).get(who)
        return entry is not None and entry.state == FROZEN

    @property
    def cycles(self) -> list[int]:
        """Cycles of which there are yields."""
        return sorted(self._entries)

    # ---- rules -------------------------------------------------------------------------------------------------------

    def _entry(self, cycle: int, shard: int, who: AgentId) -> _Entry:
        entries = self._entries.setdefault(cycle, {})
        entry = entries.get(who)
        if entry is None:
            entry = entries[who] = _Entry(cycle, shard, who)
        if entry.shard != shard:
            raise ValueError(f"a cycle has one shard: cycle={cycle}, shard={entry.shard}, then shard={shard}")
        return entry

    def _seat(self, who: AgentId) -> _Seat | None:
        seat = self._seats.get(who.agent)
        return seat if seat is not None and seat.incarnation == who.incarnation else None

    @staticmethod
    def _interrupt_next(seat: _Seat, out: list[Any]) -> None:
        while seat.outstanding is None and seat.queue:
            entry = seat.queue.popleft()
            if entry.state == ASKED:
                seat.outstanding = entry
                out.append(Interrupt(entry.who.agent, entry.cycle, entry.shard))

    @staticmethod
    def _close_asked(entries: dict[AgentId, _Entry], reason: Late) -> None:
        for entry in entries.values():
            if entry.state == ASKED:
                entry.close(reason)

    def _answer_settled(self, out: list[Any]) -> None:
        for request in list(self._requests):
            if any(entry.state in (MADE, ASKED) for entry in request.entries):
                continue
            self._requests.remove(request)
            frozen = [entry.taken for entry in request.entries if entry.taken is not None]
            closed = [entry for entry in request.entries if entry.state == CLOSED]
            late = {entry.who.agent: entry.reason for entry in closed if entry.reason is not None}
            out.append(Answered(request.ticket, request.cycle, request.shard, frozen, late))
