"""Standard streams whose faults do not stop any work: text that cannot be written is lost, and the loss is checked afterwards.

A reader may go away (`| head`), a terminal vanish (EIO), a disk be full, a descriptor be closed by the shell, or an encoding
lack a character: none of these is an error where text is printed. A terminal that stands still (Ctrl-S, `| less`) must not
stop a run: during a run a thread writes, and text that it has not written waits in bounded memory.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

__all__ = ["SturdyFile", "aside", "closed", "sturdy", "sturdy_streams"]

#: Bytes of text that wait for a reader who does not read; later text is lost.
_BACKLOG_BYTES = 1 << 20
_DESCRIPTORS = {"stdin": 0, "stdout": 1, "stderr": 2}


class SturdyFile(io.RawIOBase):
    """A descriptor to which writes never fail. It does not close the descriptor.

    Args:
        fd: the descriptor.
        lost: the error if the descriptor was unusable from the beginning.
    """

    def __init__(self, fd: int, lost: OSError | None = None) -> None:
        self._fd, self._never = fd, lost
        self.lost: OSError | None = None  # why text was lost; losses during a run do not count
        self._ready = threading.Condition()
        self._backlog = bytearray()
        self._writer: threading.Thread | None = None  # exists while `write` does not wait
        self._ending = False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def write(self, data: Any) -> int:
        given = bytes(data)
        if self._writer is None:
            self.lost = self.lost or self._put(given)
        else:
            with self._ready:
                if len(self._backlog) + len(given) <= _BACKLOG_BYTES:
                    self._backlog += given
                    self._ready.notify()
        return len(given)

    def begin_aside(self) -> None:
        """Let `write` return at once from now on; a loss does not count."""
        self._ending = False
        self._writer = threading.Thread(target=self._follow, name="mpca-output", daemon=True)
        self._writer.start()

    def end_aside(self) -> None:
        """Wait until all waiting text is written, so that a slow reader gets it. Ctrl-C ends the wait."""
        writer = self._writer
        if writer is not None:
            with self._ready:
                self._ending = True
                self._ready.notify()
            writer.join()
            self._writer = None

    def _follow(self) -> None:
        while True:
            with self._ready:
                self._ready.wait_for(lambda: self._backlog or self._ending)
                data, self._backlog = bytes(self._backlog), bytearray()
                if not data:
                    return
            self._put(data)

    def _put(self, data: bytes) -> OSError | None:
        if self._never is not None:
            return self._never
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:  # another process has made the shared terminal non-blocking
                select.select([], [self._fd], [])
            except OSError as error:
                return error
        return None


def sturdy(file: SturdyFile, encoding: str = "utf-8") -> IO[str]:
    """A text stream over the file, written at the end of each line. Characters that the encoding lacks are escaped."""
    return io.TextIOWrapper(io.BufferedWriter(file), encoding=encoding, errors="backslashreplace", line_buffering=True)


def closed(stream: IO[str]) -> OSError | None:
    """The error of a stream that the shell had closed before we began."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw._never if isinstance(raw, SturdyFile) else None


@contextmanager
def sturdy_streams() -> Iterator[list[SturdyFile]]:
    """Make writes to stdout and stderr never fail. Yields stdout's file, if stdout has a descriptor.

    A closed standard descriptor is first opened on /dev/null. Otherwise the next opened file would get its number, and prints
    of a child would go into that file.
    """
    was_closed = _fill()
    before = sys.stdout, sys.stderr
    files = []
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if name in was_closed:
            file = SturdyFile(_DESCRIPTORS[name], OSError(errno.EBADF, os.strerror(errno.EBADF)))
        else:
            try:
                stream.flush()
                file = SturdyFile(stream.fileno())
            except (AttributeError, OSError, ValueError):  # a program's own object, such as a notebook's, stays as it is
                continue
        setattr(sys, name, sturdy(file, getattr(stream, "encoding", None) or "utf-8"))
        files += [file] if name == "stdout" else []
    try:
        yield files
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


@contextmanager
def aside() -> Iterator[None]:
    """While this is open, prints do not wait for a reader of stdout or stderr, and their losses do not count."""
    raws = [getattr(getattr(stream, "buffer", None), "raw", None) for stream in (sys.stdout, sys.stderr)]
    files = [raw for raw in raws if isinstance(raw, SturdyFile)]
    for file in files:
        file.begin_aside()
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for file in files:
            file.end_aside()


def _fill() -> set[str]:
    was_closed = set()
    for name, fd in _DESCRIPTORS.items():
        try:
            os.fstat(fd)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            assert nothing == fd, f"descriptor {fd} is closed, and {nothing} was given"
            os.set_inheritable(fd, True)
            was_closed.add(name)
    return was_closed
