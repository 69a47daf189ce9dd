"""Records as lines: written whole and flushed as they happen, read back also after a kill in the middle of a line.

A line is one ``write`` of a file opened for appending, so a reader that follows the file sees whole lines, and a killed
writer tears at most its last one.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mpca.records.kinds import Record, from_json, to_json

__all__ = ["LineWriter", "MemorySink", "RecordFile", "Sink", "read_records"]

_log = logging.getLogger("mpca.records")


class Sink(Protocol):
    """Where records go."""

    def write(self, record: Record) -> None: ...

    def close(self) -> None: ...


@dataclass
class MemorySink:
    """Keeps records in a list: the simulator and the tests."""

    records: list[Record] = field(default_factory=list)

    def write(self, record: Record) -> None:
        self.records.append(record)

    def close(self) -> None:
        pass


class LineWriter:
    """Appends to ``records.jsonl``. What an earlier attempt left torn at the end is cut off first, with a warning.

    Not for several threads: the runner's loop is the only writer of a run.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        _cut_torn_tail(self.path)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, record: Record) -> None:
        """Append one line.

        Raises:
            OSError: the disk is full or gone. The part of the line that was written, if any, is taken back.
        """
        line = (json.dumps(to_json(record), separators=(", ", ": "), allow_nan=False) + "\n").encode()
        before = os.lseek(self._fd, 0, os.SEEK_END)
        done = 0
        try:
            while done < len(line):
                done += os.write(self._fd, line[done:])
        except OSError:
            if done:
                os.ftruncate(self._fd, before)
            raise

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@dataclass(frozen=True)
class RecordFile:
    """The records of a file in the order they were written."""

    records: list[Record]
    torn: str | None  # the unfinished last line, if the writer was cut off in the middle of it


def read_records(path: str | os.PathLike[str]) -> RecordFile:
    """Read ``records.jsonl``; a torn last line is left out, said in the log and returned as `torn`.

    Raises:
        ValueError: a line that is whole is not a record: the file was edited, or it is not ours.
    """
    data = Path(path).read_bytes()
    whole, newline, tail = data.rpartition(b"\n")
    torn = tail.decode("utf-8", "replace") or None
    if torn is not None:
        _log.warning("torn last line left out: path=%s, bytes=%d", path, len(tail))
    records = []
    for number, line in enumerate(whole.split(b"\n") if newline else [], start=1):
        try:
            records.append(from_json(json.loads(line)))
        except (ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"not a record: path={path}, line={number}: {error}") from None
    return RecordFile(records, torn)


def _cut_torn_tail(path: Path) -> None:
    if not path.is_file():
        return
    data = path.read_bytes()
    keep = data.rfind(b"\n") + 1
    if keep < len(data):
        _log.warning("torn last line of an earlier attempt cut off: path=%s, bytes=%d", path, len(data) - keep)
        os.truncate(path, keep)
