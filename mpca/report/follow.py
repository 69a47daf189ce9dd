"""Reads the records of a run as they come, from a local folder or from HDFS."""

from __future__ import annotations

from mpca.errors import ConfigError
from mpca.records import Record
from mpca.records.lines import record_of
from mpca.storage.parts import joined
from mpca.storage.store import Store

__all__ = ["Follower"]


class Follower:
    """For one thread.

    Args:
        store: the run's folder, which may not exist yet.
    """

    def __init__(self, store: Store) -> None:
        self.records: list[Record] = []
        self._store = store
        self._at = 0  # bytes that were read
        self._last = b""  # the last line of them

    def look(self) -> bool:
        """Read what is new.

        Returns:
            Whether anything was.

        Raises:
            ConfigError: an attempt's records have another format, or a whole line is not a record.
            OSError: the storage failed.
        """
        data = joined(self._store, self._at - len(self._last))
        again = not data.startswith(self._last)
        if again:  # another run has taken the place, or another attempt the bytes of one that it replaced
            self.records, self._at, self._last = [], 0, b""
            data = joined(self._store)
        new = data[len(self._last) :]
        for line in new[:-1].split(b"\n") if new else []:
            try:
                self.records.append(record_of(line, self._store.describe("records.jsonl"), len(self.records) + 1))
            except ConfigError as error:
                raise ConfigError(f"{self._store.describe('')}: {error}") from None
            except ValueError as error:
                raise ConfigError(f"damaged run folder: {error}") from None
            self._at, self._last = self._at + len(line) + 1, line + b"\n"
        return again or bool(new)
