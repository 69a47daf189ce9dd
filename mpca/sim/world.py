"""Virtual time: one heap that says when something happens, one clock, one source of chance. It does not know what happens."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any

from mpca.clock import ManualClock

__all__ = ["World"]


class World:
    """Things that happen at the same time happen in the order in which they were planned.

    Args:
        seed: of the source of chance.
    """

    def __init__(self, seed: int) -> None:
        self.clock = ManualClock()
        self.random = Random(seed)
        self.now = 0.0
        self._began = self.clock.wall()
        self.happened = 0
        self._serial = 0
        self._heap: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []

    def true_wall(self) -> float:
        """Seconds since 1970, by a clock that nobody sets."""
        return self._began + self.now

    def after(self, delay_s: float, act: Callable[..., Any], *arguments: Any) -> None:
        """Call `act(*arguments)` after `delay_s` seconds. This cannot be cancelled: `act` checks whether it still applies."""
        self._serial += 1
        heapq.heappush(self._heap, (self.now + delay_s, self._serial, act, arguments))

    def run(self, until: float, wanted: list[Any]) -> None:
        """Let time pass to `until` (seconds of virtual time), or to the moment when `wanted` is no longer empty.

        Args:
            until: seconds of virtual time.
            wanted: a list that what happens may append to.
        """
        heap = self._heap
        while heap and heap[0][0] <= until and not wanted:
            now = heap[0][0]
            if now > self.now:
                self.now = now
                self.clock.set(now)
            # everything of one moment, so that the reader of `wanted` sees it together
            while heap and heap[0][0] == now:
                _, _, act, arguments = heapq.heappop(heap)
                self.happened += 1
                act(*arguments)
        if not wanted and until > self.now:
            self.now = until
            self.clock.set(until)
