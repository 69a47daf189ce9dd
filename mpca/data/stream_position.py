"""Position of a stream: the finished units of its epoch. Needed since the shuffle window mixes records of units. No I/O."""

from __future__ import annotations

from collections import Counter

from mpca.data.stream_reader import Record

__all__ = ["StreamPosition"]


class StreamPosition:
    """Counts the records that leave the stream, including bad ones. Epochs come one after the other."""

    def __init__(self) -> None:
        self._epoch = self._finished = 0
        self._given: Counter[int] = Counter()  # index of an unfinished unit -> number of its records that have left

    @property
    def position(self) -> tuple[int, int]:
        """Epoch, and number of finished units from the beginning of this agent's share: see `plan.Loss`."""
        return self._epoch, self._finished

    def add(self, record: Record) -> None:
        """Note that a record has left."""
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
