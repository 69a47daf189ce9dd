"""What the shell sees of a driver's state machine: the shell hands events in, gets instructions, and reads what is shown.

A method whose agents ask by themselves brings a machine of its own behind this seam. `cycle.CycleMachine` is the one of cycles.
"""

from __future__ import annotations

from typing import Any, Protocol

from mpca.driver.events import Event
from mpca.driver.instructions import End, Instruction
from mpca.driver.run_shape import RunShape
from mpca.driver.states import RunState

__all__ = ["Machine"]


class Machine(Protocol):
    """Pure: it opens nothing and reads no clock. Times are seconds of the clock that `now` is read from."""

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Apply one event and say what to do next.

        Args:
            event: what happened.
            now: when, in seconds of a monotonic clock.

        Returns:
            Instructions for the shell, in the order in which it must carry them out.

        Raises:
            LocalProtocolError: no such event, or a move that the tables of `states.py` do not have.
        """
        ...

    @property
    def shape(self) -> RunShape:
        """What does not change during the run."""
        ...

    @property
    def state(self) -> RunState:
        """The state of the run."""
        ...

    @property
    def cycle(self) -> int:
        """The cycle that goes on, or is next."""
        ...

    @property
    def counts(self) -> str:
        """The word for what `cycle` counts: "cycle", or "exchange"."""
        ...

    @property
    def began(self) -> float | None:
        """When training began: all agents of the start had taken an update, or `start_timeout` was over. None: not yet."""
        ...

    @property
    def stopped(self) -> float | None:
        """When the run was first asked to stop; None: not yet."""
        ...

    @property
    def ended(self) -> End | None:
        """How the run has ended; None: it goes on."""
        ...

    @property
    def executors(self) -> int:
        """How many executors there are now."""
        ...

    @property
    def agents_wanted(self) -> int:
        """How many agents the run was given."""
        ...

    @property
    def agents_alive(self) -> int:
        """Agents that train, or are about to."""
        ...

    @property
    def agents_lost(self) -> int:
        """How often an agent was lost so far."""
        ...

    @property
    def agents_replaced(self) -> int:
        """How often a replacement said hello so far."""
        ...

    @property
    def at_work(self) -> str:
        """Which train functions the end of the run waits for; empty: none."""
        ...

    @property
    def local_reads(self) -> int:
        """How many reads of local tensors have ended so far, successful or given up."""
        ...

    @property
    def local_read_s(self) -> float:
        """Seconds that the newest of those reads took."""
        ...

    def position(self) -> dict[str, Any]:
        """Where agents are in the data, for a later attempt; empty when they read nothing of the run."""
        ...
