"""Counts and names bad records, which are skipped. Above a share of bad records the run ends. No I/O except the log."""

from __future__ import annotations

import logging
from collections.abc import Callable

from mpca.errors import BadRecords

__all__ = ["NAMED", "BadTally"]

_log = logging.getLogger("mpca.data")

#: Number of bad records that the log and the error name; `tell` gets all of them.
NAMED = 10


class BadTally:
    """The bad records of one agent. A record counts once, even if several epochs find it bad.

    Args:
        records: number of records that the agent reads in an epoch. The share refers to this number, not to the records read so
            far; otherwise one early bad record would exceed every limit.
        max_fraction: share of `records` that may be bad.
        tell: is called for each bad record, with its source (a file, and what names the record in it) and the reason.
    """

    def __init__(
        self, records: int, max_fraction: float, tell: Callable[[str, str], None] = lambda source, reason: None
    ) -> None:
        self._records, self._max_fraction, self._tell = records, max_fraction, tell
        self._numbers: set[int] = set()
        self.names: list[str] = []  # sources and reasons of the first `NAMED` records
        self._any_good = False

    @property
    def count(self) -> int:
        return len(self._numbers)

    def good(self) -> None:
        """Note that a record was good."""
        self._any_good = True

    def add(self, number: int, source: str, reason: str) -> None:
        """Note a bad record.

        Raises:
            BadRecords: too many are bad; names the first ones.
        """
        if number in self._numbers:
            return
        self._numbers.add(number)
        self._tell(source, reason)
        if self.count <= NAMED:
            self.names.append(f"{source}: {reason}")
            _log.warning("bad record %d, skipped: %s: %s", self.count, source, reason)
        if self.count >= self._records and not self._any_good:  # even if all may be bad: the stream would never end
            raise BadRecords(f"not one record can be read: all {self.count} of an epoch are bad; {'; '.join(self.names)}")
        if self.count > self._max_fraction * self._records:
            raise BadRecords(
                f"too many bad records: {self.count} of {self._records} that an agent reads in an epoch, "
                f"data.max_bad_fraction={self._max_fraction:g}; {'; '.join(self.names)}"
            )
