"""Keeps records in bounded memory while their file cannot be written, and writes them in order when it can.

A disk that is full or fails, and a folder that is read-only or removed, do not end training. Records beyond the memory limit
are dropped, the oldest first, so that the end of a run is never lost; a `gap` record says what is missing.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from mpca.records.kinds import GapRecord, Record
from mpca.records.lines import line_of
from mpca.timeouts import DISK_AGAIN_S
from mpca.units import format_size

__all__ = ["LIMIT_BYTES", "Backlog"]

log = logging.getLogger("mpca.records")
#: Enough for two hours or more with a cycle every five seconds: the record of a cycle of sixteen agents takes 1.5 kB, and what
#: they log, 2 kB a second in the first hour.
LIMIT_BYTES = 16 << 20


class _Lines(Protocol):
    """Takes a whole line, or raises OSError and takes nothing of it, as `lines.LineWriter` does."""

    def append(self, line: bytes) -> None: ...

    def close(self) -> None: ...


class Backlog:
    """A `Sink` that never raises OSError. For one thread, as `LineWriter`.

    Args:
        lines: the file.
        limit_bytes: limit of the lines in memory.
        now: the clock, in seconds, monotonic.
    """

    def __init__(self, lines: _Lines, limit_bytes: int = LIMIT_BYTES, now: Callable[[], float] = time.monotonic) -> None:
        self._lines, self._limit_bytes, self._now = lines, limit_bytes, now
        self._waiting: deque[tuple[float, bytes]] = deque()  # (t, line)
        self._waiting_bytes = 0
        self._gap: GapRecord | None = None  # the records that were dropped before those that wait
        self._next = 0.0
        self.error: OSError | None = None  # why records wait

    def write(self, record: Record) -> None:
        """Write a record after those that wait. Waiting records are tried again at most once a second."""
        line = line_of(record)
        self._waiting.append((record.t, line))
        self._waiting_bytes += len(line)
        if self.error is None or self._now() >= self._next:
            self.flush()
        self._drop()

    def flush(self) -> bool:
        """Try to write all waiting records now.

        Returns:
            Whether none is left.
        """
        failed, held = self.error, len(self._waiting)
        try:
            if self._gap is not None:
                self._lines.append(line_of(self._gap))
                self._gap = None
            while self._waiting:
                self._lines.append(self._waiting[0][1])
                self._waiting_bytes -= len(self._waiting.popleft()[1])
        except OSError as error:
            self.error, self._next = error, self._now() + DISK_AGAIN_S
            if failed is None:
                log.warning("records cannot be written; they are kept in memory and tried again: %s", error)
            return False
        self.error = None
        if failed is not None:
            log.info("records are written again: count=%d", held)
        return True

    @property
    def waiting(self) -> bytes:
        """The lines that are not yet in the file, in order."""
        gap = [] if self._gap is None else [line_of(self._gap)]
        return b"".join([*gap, *(line for _, line in self._waiting)])

    def close(self) -> None:
        """Close the file. Waiting records are lost, so call `flush` before."""
        self._lines.close()

    def _drop(self) -> None:
        if self._waiting_bytes <= self._limit_bytes:
            return
        start, count, end = (self._waiting[0][0], 0, 0.0) if self._gap is None else (self._gap.start, self._gap.count, 0.0)
        while self._waiting_bytes > self._limit_bytes:
            end, line = self._waiting.popleft()
            self._waiting_bytes -= len(line)
            count += 1
        if self._gap is None:
            log.warning("records are dropped, the oldest first: %s of them wait already", format_size(self._limit_bytes))
        self._gap = GapRecord(
            end, count, start, end, f"the file took no records, and memory holds {format_size(self._limit_bytes)}"
        )
