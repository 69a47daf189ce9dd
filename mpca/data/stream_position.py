"""How far a stream has come: which units of its epoch are finished, now that records leave them in another order. No I/O."""

from __future__ import annotations

from collections import Counter

from mpca.data.stream_reader import Record

__all__ = ["StreamPosition"]


class StreamPosition:
    """Counts records as they are handed out, bad ones included. Epochs come one after the other."""

    def __init__(self) -> None:
        self._epoch = self._finished = 0
        self._given: Counter[int] = Counter()  # index of a unit that is not finished -> records of it

    @property
    def position(self) -> tuple[int, int]:
        """Epoch, and units of this agent's share of it that are finished, from the first one on: see `plan.Loss`."""
        return self._epoch, self._finished

    def add(self, record: Record) -> None:
        """A record has left."""
        if record.epoch != self._epoch:
            self._epoch, self._finished = record.epoch, 0
            self._given.clear()
        self._given[record.unit_index] += 1
        if self._given[record.unit_index] == record.unit.count:
            self._given[record.unit_index] = _WHOLE
        while self._given[self._finished] == _WHOLE:
            del self._given[self._finished]
            self._finished += 1


_WHOLE = -1
