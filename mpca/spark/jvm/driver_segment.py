"""The memory file in which pieces of files pass between the driver's Python and its JVM.

The file has no name, so nothing is left behind after any kill, and /dev/shm does not limit it. Memory is allocated before it is
written, so that a full machine raises an error here and does not kill the writer by a signal. The file grows to the size of the
largest piece and keeps it.
"""

from __future__ import annotations

import os

__all__ = ["DriverSegment"]


class DriverSegment:
    """One piece at a time, from the file's start on. Not safe for two threads at once."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("mpca-driver")
        self._size = 0

    @property
    def path(self) -> str:
        """The path by which another process of this machine opens it."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def reserve(self, size_bytes: int) -> None:
        """Make room for so many bytes.

        Raises:
            OSError: there is not that much memory.
        """
        if size_bytes > self._size:
            os.posix_fallocate(self._fd, 0, size_bytes)
            self._size = size_bytes

    def write(self, data: memoryview) -> int:
        """Copy bytes in.

        Returns:
            How many they are.
        """
        self.reserve(len(data))
        done = 0
        while done < len(data):  # one call moves at most 2 GiB
            done += os.pwrite(self._fd, data[done:], done)
        return len(data)

    def read(self, length: int) -> bytes:
        """A copy of the first `length` bytes; at most 2 GiB."""
        data = os.pread(self._fd, length, 0)
        if len(data) != length:
            raise OSError(f"segment is shorter than the piece: bytes={len(data)}, expected={length}")
        return data

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
