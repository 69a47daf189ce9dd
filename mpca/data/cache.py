"""A local copy of records that were read: one ring file of a fixed size, without a name. New pieces overwrite the oldest.

The file has no name, so the kernel frees it when its process ends, for whatever reason. Nothing must be cleaned up, and a
replacement begins with an empty copy. Each piece's checksum is compared when it is read; a damaged piece is forgotten. When the
disk is full or fails, the copy is given up and training goes on. For one thread.
"""

from __future__ import annotations

import logging
import os
import tempfile
import zlib
from collections import OrderedDict
from types import TracebackType

__all__ = ["RecordCache"]

_log = logging.getLogger("mpca.data")


class RecordCache:
    """Pieces of bytes by number. `hits` and `misses` count the calls of `get` that found a piece, or none."""

    def __init__(self, limit_bytes: int, folder: str | os.PathLike[str] = ".") -> None:
        """Make an empty copy.

        Args:
            limit_bytes: size of the file; 0 keeps nothing.
            folder: a folder on the disk that holds the copy. The default is the working folder (on YARN the container's).
        """
        self.limit_bytes = limit_bytes
        self.hits = self.misses = 0
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0) if limit_bytes else None  # noqa: SIM115
        self._pieces: OrderedDict[int, tuple[int, int, int]] = OrderedDict()  # number -> offset, length, crc; oldest first
        self._head = 0  # where the next piece goes

    def get(self, number: int) -> bytes | None:
        """The piece of that number; None when the copy does not hold it."""
        if self._file is None or number not in self._pieces:
            self.misses += 1
            return None
        offset, length, crc = self._pieces[number]
        try:
            data = os.pread(self._file.fileno(), length, offset)
        except OSError as error:
            self._give_up(error)
            return None
        if len(data) != length or zlib.crc32(data) != crc:
            _log.warning("a piece of the local copy is damaged and read again: piece=%d", number)
            del self._pieces[number]
            self.misses += 1
            return None
        self.hits += 1
        return data

    def put(self, number: int, data: bytes) -> None:
        """Keep a piece, and forget the oldest ones where it needs their room."""
        if self._file is None or len(data) > self.limit_bytes or number in self._pieces:
            return
        if self._head + len(data) > self.limit_bytes:
            self._forget(self._head, self.limit_bytes)  # the end of the ring is too short for it
            self._head = 0
        self._forget(self._head, self._head + len(data))
        try:
            written = os.pwrite(self._file.fileno(), data, self._head)
        except OSError as error:
            self._give_up(error)
            return
        if written == len(data):
            self._pieces[number] = self._head, len(data), zlib.crc32(data)
            self._head += len(data)

    @property
    def held_bytes(self) -> int:
        """Bytes of all pieces in the copy."""
        return sum(length for _, length, _ in self._pieces.values())

    def close(self) -> None:
        """Free the disk; safe to call twice."""
        self._pieces.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> RecordCache:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _forget(self, start: int, end: int) -> None:
        """Forget the pieces in this part of the ring. Behind the head lie the oldest ones, in order."""
        while self._pieces:
            number, (offset, length, _) = next(iter(self._pieces.items()))
            if offset >= end or offset + length <= start:
                return
            del self._pieces[number]

    def _give_up(self, error: OSError) -> None:
        _log.warning("the local copy of the records is given up: %s", error)
        self.close()
