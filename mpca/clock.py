"""The clock. State machines get `now` as an argument; only the loops around them hold a Clock.

`now()` never jumps, and is the same for all processes of one machine. Executors measure its offset from the driver's clock, so
that deadlines and times in messages are those of the driver. `wall()` may be wrong, and may be set at any moment: it gives
names of folders, and no wait uses it.
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
    """A clock that moves only by `set` and `advance`, for tests and the simulator."""

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
        """Set the wall clock forward by seconds; negative: back."""
        self._epoch += seconds

    def advance(self, seconds: float) -> None:
        self.set(self._now + seconds)
