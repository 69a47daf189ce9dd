"""Records that cannot be used: skipped, counted, told by name; above a share of them the run ends. No I/O but the log."""

from __future__ import annotations

import logging
from collections.abc import Callable

from mpca.errors import BadRecords

__all__ = ["NAMED", "BadTally"]

_log = logging.getLogger("mpca.data")

#: So many are named in the log and in the error that ends a run; all of them to whoever is told.
NAMED = 10


class BadTally:
    """Of one agent. A record counts once, in however many epochs it is bad.

    `records` is how many the agent reads in an epoch: the share is of that, not of what it has read so far, or the first
    bad record of a run would be half of it.
    """

    def __init__(
        self, records: int, max_fraction: float, tell: Callable[[str, str], None] = lambda where, reason: None
    ) -> None:
        self._records, self._max_fraction, self._tell = records, max_fraction, tell
        self._numbers: set[int] = set()
        self.names: list[str] = []  # of the first ones, with their reasons
        self._any_good = False

    @property
    def count(self) -> int:
        return len(self._numbers)

    def good(self) -> None:
        """A record could be used."""
        self._any_good = True

    def add(self, number: int, where: str, reason: str) -> None:
        """Note a record.

        Raises:
            BadRecords: they are too many now; names the first ones.
        """
        if number in self._numbers:
            return
        self._numbers.add(number)
        self._tell(where, reason)
        if self.count <= NAMED:
            self.names.append(f"{where}: {reason}")
            _log.warning("bad record %d, skipped: %s: %s", self.count, where, reason)
        if self.count >= self._records and not self._any_good:  # whatever share is allowed: it would go on for ever
            raise BadRecords(f"not one record can be read: all {self.count} of an epoch are bad; {'; '.join(self.names)}")
        if self.count > self._max_fraction * self._records:
            raise BadRecords(
                f"too many bad records: {self.count} of {self._records} that an agent reads in an epoch, "
                f"data.max_bad_fraction={self._max_fraction:g}; {'; '.join(self.names)}"
            )
