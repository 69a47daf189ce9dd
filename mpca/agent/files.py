"""Files of HDFS for an agent. Its executor's JVM reads them, with tokens, HA and locality, into memory that both map.

Requests have pipes of their own (`wire.messages.Files`), so that only the main loop uses the control pipe and no order waits
for a file. There is one range at a time; a stream has a thread that reads ahead. Hadoop's client waits for a NameNode that
restarts. Only for reading.
"""

from __future__ import annotations

import errno
import mmap
import os
import select
import threading
from collections.abc import Callable
from typing import Protocol

from mpca.errors import EnvironmentRefused
from mpca.storage.blocks import Piece
from mpca.storage.hadoop_errors import as_os_error
from mpca.storage.locations import Location
from mpca.timeouts import PIPES_OPEN_S
from mpca.wire.codec import FrameReader, encode
from mpca.wire.messages import Fetch, Fetched, Files

__all__ = ["MEMORY_BYTES", "ExecutorFiles", "Fetcher", "FilePipe"]

#: A longer range is read in pieces. A unit of ImageNet's records has 3.5 MB.
MEMORY_BYTES = 4 << 20
_READ_BYTES = 1 << 16


class FilePipe:
    """The connection to the executor that all stores of an agent share.

    Args:
        say: sends a message on the control pipe.

    Raises:
        EnvironmentRefused: the executor does not open its pipes in time.
    """

    def __init__(self, say: Callable[[Files], None]) -> None:
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        memory = os.memfd_create("mpca-files", os.MFD_CLOEXEC)
        self._reader = FrameReader()
        self._turn = threading.Lock()
        self._number = 0
        try:
            os.posix_fallocate(memory, 0, MEMORY_BYTES)
            self._memory = mmap.mmap(memory, MEMORY_BYTES)
            say(Files(os.getpid(), requests, answers, memory, MEMORY_BYTES))
            poll = select.poll()
            poll.register(self._answers, select.POLLIN)
            if not poll.poll(PIPES_OPEN_S * 1000):
                raise EnvironmentRefused(f"the executor has not opened the pipes for files within {PIPES_OPEN_S:.0f} s")
            self._answer(0)
        finally:  # the executor has its own descriptors by now; with ours open we would not see it close them
            for one in (requests, answers, memory):
                os.close(one)

    def fetch(self, url: str, offset: int, length: int) -> bytes:
        """Read up to `length` bytes from `offset` on; fewer only at the end of the file.

        Raises:
            OSError: the error of Hadoop's client; FileNotFoundError for a missing file.
        """
        pieces = []
        with self._turn:
            while length > 0:
                wanted = min(length, MEMORY_BYTES)
                self._number += 1
                self._write(encode(Fetch(self._number, url, offset, wanted)))
                answer = self._answer(self._number)
                if answer.error:
                    raise as_os_error(answer.error, answer.text, url)
                pieces.append(self._memory[: answer.bytes])
                if answer.bytes < wanted:
                    break
                offset, length = offset + wanted, length - wanted
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _write(self, frame: bytes) -> None:
        view = memoryview(frame)
        while view:
            view = view[os.write(self._requests, view) :]

    def _answer(self, number: int) -> Fetched:
        while True:
            data = os.read(self._answers, _READ_BYTES)
            if not data:
                raise OSError(errno.EIO, "the executor no longer reads files for this agent")
            for answer in self._reader.feed(data):
                assert isinstance(answer, Fetched)
                assert answer.number == number
                return answer

    def close(self) -> None:
        """Close the pipes; the executor's thread then ends."""
        os.close(self._requests)
        os.close(self._answers)
        self._memory.close()


class Fetcher(Protocol):
    """Reads ranges of files: a `FilePipe`, or another way through a JVM."""

    def fetch(self, url: str, offset: int, length: int) -> bytes: ...


class ExecutorFiles:
    """A folder of HDFS as a read-only `Store`. Methods that write raise OSError."""

    def __init__(self, pipe: Fetcher, root: Location) -> None:
        self._pipe, self._root = pipe, root

    def read(self, path: str) -> bytes:
        pieces: list[bytes] = []
        while not pieces or len(pieces[-1]) == MEMORY_BYTES:
            pieces.append(self.read_range(path, len(pieces) * MEMORY_BYTES, MEMORY_BYTES))
        return b"".join(pieces)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self._pipe.fetch(self.describe(path), offset, length)

    def describe(self, path: str) -> str:
        return (self._root / path).text if path else self._root.text

    def exists(self, path: str) -> bool:
        try:
            self.read_range(path, 0, 1)
        except FileNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        raise self._refused(path)

    def names(self, path: str) -> list[str]:
        raise self._refused(path)

    def create_exclusive(self, path: str, data: bytes) -> None:
        raise self._refused(path)

    def write(self, path: str, *pieces: Piece) -> None:
        raise self._refused(path)

    def sync(self, path: str) -> None:
        raise self._refused(path)

    def rename(self, old: str, new: str) -> None:
        raise self._refused(old)

    def delete(self, path: str) -> None:
        raise self._refused(path)

    def rmdir(self, path: str) -> None:
        raise self._refused(path)

    def _refused(self, path: str) -> OSError:
        return OSError(errno.EROFS, "an agent only reads files through its executor", self.describe(path))
