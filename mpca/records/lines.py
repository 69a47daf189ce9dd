"""Writes records as whole lines at once, and reads them back, even if the writer was killed in the middle of a line.

A line is one ``write`` to a file opened for appending. So a reader that follows the file sees whole lines, and a killed writer
leaves at most its last line torn.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mpca import strict_json
from mpca.errors import ConfigError
from mpca.private import opener
from mpca.records.kinds import Record, from_json, to_json

__all__ = ["LineWriter", "MemorySink", "RecordFile", "Sink", "line_of", "read_records", "record_of"]

_log = logging.getLogger("mpca.records")


class Sink(Protocol):
    """Takes records."""

    def write(self, record: Record) -> None: ...

    def close(self) -> None: ...


@dataclass
class MemorySink:
    """Keeps records in a list, for the simulator and the tests."""

    records: list[Record] = field(default_factory=list)

    def write(self, record: Record) -> None:
        self.records.append(record)

    def close(self) -> None:
        pass


class LineWriter:
    """Appends to ``records.jsonl``. The first write cuts off a torn line of an earlier attempt, with a warning.

    For one thread: the runner's loop is the only writer of a run.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._end = _whole(self.path)  # byte after the last whole line
        self._fd = opener(str(self.path), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, record: Record) -> None:
        """Append one record.

        Raises:
            OSError: as `append`.
        """
        self.append(line_of(record))

    def append(self, line: bytes) -> None:
        """Append one line, with its newline.

        Raises:
            OSError: the disk is full or gone, or the file was removed. No part of the line stays: it is cut off now, or
                before the next line.
        """
        self._check_there()
        done = 0
        try:
            self._cut()
            while done < len(line):
                done += os.write(self._fd, line[done:])
        except OSError:
            with suppress(OSError):
                self._cut()
            raise
        self._end += done

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _check_there(self) -> None:
        """Raise OSError when the file was removed: an open file still takes lines, but nobody could read them."""
        mine, there = os.fstat(self._fd), os.stat(self.path)
        if (mine.st_dev, mine.st_ino) != (there.st_dev, there.st_ino):
            raise FileNotFoundError(errno.ENOENT, "another file is in its place", str(self.path))

    def _cut(self) -> None:
        if os.fstat(self._fd).st_size > self._end:
            os.ftruncate(self._fd, self._end)


@dataclass(frozen=True)
class RecordFile:
    """The records of a file, in the order of writing."""

    records: list[Record]
    torn: str | None  # the unfinished last line, if the writer was killed in the middle of it


def read_records(path: str | os.PathLike[str]) -> RecordFile:
    """Read ``records.jsonl``. A torn last line is left out, logged, and returned as `torn`.

    Raises:
        ConfigError: an attempt's records have another format.
        OSError: the file cannot be read.
        ValueError: a whole line is not a record: the file was edited, or is not ours.
    """
    data = Path(path).read_bytes()
    whole, newline, tail = data.rpartition(b"\n")
    torn = tail.decode("utf-8", "replace") or None
    if torn is not None:
        _log.warning("torn last line left out: path=%s, bytes=%d", path, len(tail))
    records = []
    for number, line in enumerate(whole.split(b"\n") if newline else [], start=1):
        records.append(record_of(line, path, number))
    return RecordFile(records, torn)


def record_of(line: bytes, path: str | os.PathLike[str], number: int) -> Record:
    """The record of a line; errors name its file and its number.

    Raises:
        ConfigError, ValueError: as `read_records`.
    """
    try:
        return from_json(strict_json.loads(line))
    except ConfigError:
        raise
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"not a record: path={path}, line={number}: {error}") from None


def line_of(record: Record) -> bytes:
    """The record's line, with its newline."""
    return (json.dumps(to_json(record), separators=(", ", ": "), allow_nan=False) + "\n").encode()


def _whole(path: Path) -> int:
    """Number of bytes of the whole lines in a file."""
    if not path.is_file():
        return 0
    data = path.read_bytes()
    keep = data.rfind(b"\n") + 1
    if keep < len(data):
        _log.warning("torn last line of an earlier attempt is cut off: path=%s, bytes=%d", path, len(data) - keep)
    return keep
