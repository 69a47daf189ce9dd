"""Time as a collaborator. State machines get `now` as an argument; only shells hold a Clock.

`now()` never jumps, and all processes of one machine have it in common; executors measure the offset of theirs from the
driver's, so that deadlines and times of reports travel as the driver's. `wall()` may be wrong and be set at any moment: it
names folders, and nothing waits by it.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    def now(self) -> float:
        """Seconds, monotonic: Linux's CLOCK_MONOTONIC, which Java's System.nanoTime is too."""
        ...

    def wall(self) -> float:
        """Seconds since 1970."""
        ...


class SystemClock:
    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


class ManualClock:
    """A clock that moves when it is told to: tests, and the simulator's virtual time."""

    def __init__(self, start: float = 0.0, epoch: float = 1_000_000.0) -> None:
        self._now = start
        self._epoch = epoch

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._epoch + self._now

    def set(self, now: float) -> None:
        assert now >= self._now, (now, self._now)
        self._now = now

    def set_wall_forward(self, seconds: float) -> None:
        """Somebody sets the wall clock; negative: back."""
        self._epoch += seconds

    def advance(self, seconds: float) -> None:
        self.set(self._now + seconds)
