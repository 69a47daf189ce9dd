"""Time as a collaborator. State machines get `now` as an argument; only shells hold a Clock.

`now()` orders events inside one process and never jumps. `wall()` stamps records and deadlines that another process
of the cluster reads (design, section 2: deadlines travel as absolute times).
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    def now(self) -> float:
        """Seconds, monotonic, of no particular origin."""
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

    def advance(self, seconds: float) -> None:
        self.set(self._now + seconds)
