"""The states of a run and of an agent, which moves are legal, and the story of the newest moves.

States of a run::

    STARTING --all said hello--> READING --x_0 is known--> RUNNING <--> PAUSED
      |    ^---- its source is gone ---/|                     |            |
      +------------- StopRequested -----+---------------------+------------+--> STOPPING --> CLOSED

A run that goes on from a backup moves from STARTING to RUNNING. One that decides its number of shards moves back from READING
to STARTING, its agents with it, and then to RUNNING: all say hello again.

States of an agent::

    ABSENT --start--> STARTING --hello--> JOINING --joint model--> READY --begin--> BEGUN --first update--> ACTIVE <--> LATE

Each of them but ABSENT and FINISHED may move to ABSENT (died, raised, lost with its executor) or to FINISHED (its train
function returned). BEGUN moves back to READY when the order that said begin failed. READY moves to ACTIVE when the agent has
stepped in this incarnation. ACTIVE moves to JOINING when its parameters could not be used, or when it waits for a joint state
that will not come: it takes the joint model.

An illegal move raises `LocalProtocolError` with the newest events, and changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from mpca.driver.events import Event, Tick
from mpca.errors import LocalProtocolError

__all__ = ["AGENT_MOVES", "LIVING", "RUN_MOVES", "AgentState", "RunState", "Story"]


class RunState(str, Enum):
    STARTING = "STARTING"
    READING = "READING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPING = "STOPPING"
    CLOSED = "CLOSED"

    def __str__(self) -> str:
        return self.value


class AgentState(str, Enum):
    ABSENT = "ABSENT"
    STARTING = "STARTING"
    JOINING = "JOINING"
    READY = "READY"  # it has the joint model; the next order tells it to begin
    BEGUN = "BEGUN"  # it was told to begin, and has taken no update yet: loading data, or compiling, may take many cycles
    ACTIVE = "ACTIVE"
    LATE = "LATE"  # left out of everything until it answers again: same process, same incarnation
    FINISHED = "FINISHED"

    def __str__(self) -> str:
        return self.value


#: States of a process that is there and has more to do.
LIVING = (AgentState.JOINING, AgentState.READY, AgentState.BEGUN, AgentState.ACTIVE, AgentState.LATE)

RUN_MOVES: Mapping[RunState, frozenset[RunState]] = {
    RunState.STARTING: frozenset({RunState.READING, RunState.RUNNING, RunState.STOPPING}),
    RunState.READING: frozenset({RunState.STARTING, RunState.RUNNING, RunState.STOPPING}),
    RunState.RUNNING: frozenset({RunState.PAUSED, RunState.STOPPING}),
    RunState.PAUSED: frozenset({RunState.RUNNING, RunState.STOPPING}),
    RunState.STOPPING: frozenset({RunState.CLOSED}),
    RunState.CLOSED: frozenset(),
}

_GONE = frozenset({AgentState.ABSENT, AgentState.FINISHED})
AGENT_MOVES: Mapping[AgentState, frozenset[AgentState]] = {
    AgentState.ABSENT: frozenset({AgentState.STARTING}),
    AgentState.STARTING: _GONE | {AgentState.JOINING},
    AgentState.JOINING: _GONE | {AgentState.READY, AgentState.STARTING},
    AgentState.READY: _GONE | {AgentState.BEGUN, AgentState.ACTIVE},
    AgentState.BEGUN: _GONE | {AgentState.ACTIVE, AgentState.READY},
    AgentState.ACTIVE: _GONE | {AgentState.LATE, AgentState.JOINING},
    AgentState.LATE: _GONE | {AgentState.ACTIVE},
    AgentState.FINISHED: frozenset(),
}

State = TypeVar("State", RunState, AgentState)

#: Events and moves that are kept.
STORY = 200
#: Events that an error tells.
TOLD = 20
_WIDTH = 200  # characters of one event


class Story:
    """The newest events and moves of one run, oldest first. Ticks in a row count as one."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, Event | str]] = deque(maxlen=STORY)

    def heard(self, event: Event, now: float) -> None:
        """An event is handled at time `now` (seconds of the machine)."""
        if isinstance(event, Tick) and self._lines and isinstance(self._lines[-1][1], Tick):
            self._lines.pop()
        self._lines.append((now, event))

    def moved(
        self, who: str, before: State, after: State, reason: str, moves: Mapping[State, frozenset[State]], now: float
    ) -> None:
        """Check a move against its table, and keep it.

        Args:
            who: what moves, such as "agent=3".
            before: the state that it leaves.
            after: the state that it enters.
            reason: why.
            moves: the table that says which moves are legal.
            now: seconds of the machine.

        Raises:
            LocalProtocolError: the move is illegal; the message has the newest events.
        """
        move = f"{who} state {before} -> {after} reason={reason!r}"
        if after not in moves[before]:
            events = [f"  {self._shown(*line)}" for line in self._lines if not isinstance(line[1], str)]
            newest = "\n".join(events[-TOLD:])
            raise LocalProtocolError(f"illegal move: {move}; newest events:\n{newest}")
        self._lines.append((now, move))

    def lines(self) -> list[str]:
        """What is kept, one line each, for a person to read."""
        return [self._shown(*line) for line in self._lines]

    @staticmethod
    def _shown(now: float, what: Event | str) -> str:
        text = what if isinstance(what, str) else repr(what)
        return f"{now:.3f} {text[:_WIDTH]}"
