"""Vectors that pass between the driver's Python and its JVM without being copied here: arrays that lie in memory files.

The files have no names, so nothing is left behind after any kill, and /dev/shm does not limit them. Memory is allocated before
it is written, so that a full machine raises an error here and does not kill the writer by a signal. Nothing bulky goes through
py4j.
"""

from __future__ import annotations

import mmap
import os
from typing import NamedTuple
from weakref import finalize

import numpy as np
import numpy.typing as npt

__all__ = ["DriverVectors"]

Vector = npt.NDArray[np.float32]

_SPARE = 2  # files that wait for another vector: new pages cost more than writing them
_STEP = 64 << 10  # files are of whole steps, so that shards which differ by an element fit into each other's


class _File(NamedTuple):
    fd: int
    memory: mmap.mmap


class DriverVectors:
    """Makes vectors, and knows in which file each of them lies. A file is freed with its vector, wherever that is kept.

    Not safe for two threads at once; but a vector may come to its end in any thread.
    """

    def __init__(self) -> None:
        self._open = os.memfd_create("mpca-driver")  # there until `close`
        self._files: dict[int, _File] = {}  # of living vectors, by their address
        self._spare: list[_File] = []

    @property
    def path(self) -> str:
        """A file of /proc that is there until `close`, and no longer than this process."""
        return _path(self._open)

    def empty(self, elements: int) -> Vector:
        """A vector with anything in it, float32[elements].

        Raises:
            OSError: there is not that much memory.
        """
        size = max(1, -(-4 * elements // _STEP)) * _STEP
        file = next((one for one in self._spare if size <= len(one.memory) <= size + size // 64), None)
        if file is None:
            if self._spare:  # vectors have another size now, and none will fit into those that waited first
                os.close(self._spare.pop(0).fd)
            file = _made(size)
        else:
            self._spare.remove(file)
        vector = np.frombuffer(file.memory, np.float32, elements)
        address = _address(vector)
        self._files[address] = file
        finalize(vector, self._gone, address).atexit = False
        return vector

    def has(self, vector: Vector) -> bool:
        """Whether a vector lies at the start of one that was made here."""
        return vector.flags.c_contiguous and _address(vector) in self._files

    def path_of(self, vector: Vector) -> str:
        """The file at whose start a vector lies that is ours (`has`)."""
        return _path(self._files[_address(vector)].fd)

    def lying(self, vector: Vector) -> tuple[Vector, str]:
        """The same numbers where the JVM can read them, from a file's start on: that vector itself, or a copy.

        Returns:
            The vector that lies there, for the caller to keep meanwhile, and the path of its file.
        """
        if not self.has(vector):
            vector, original = self.empty(vector.size), vector
            vector[:] = original
        return vector, self.path_of(vector)

    def close(self) -> None:
        """Free what no vector lies in; each of the others is freed with its vector. Safe to call twice."""
        if self._open >= 0:
            os.close(self._open)
            self._open = -1
            while self._spare:
                os.close(self._spare.pop().fd)

    def _gone(self, address: int) -> None:
        file = self._files.pop(address)
        if self._open >= 0 and len(self._spare) < _SPARE:
            self._spare.append(file)
        else:
            os.close(file.fd)


def _made(size: int) -> _File:
    fd = os.memfd_create("mpca-vector")
    try:
        os.posix_fallocate(fd, 0, size)
        return _File(fd, mmap.mmap(fd, size))
    except BaseException:
        os.close(fd)
        raise


def _address(vector: Vector) -> int:
    address: int = vector.__array_interface__["data"][0]
    return address


def _path(fd: int) -> str:
    """The path by which another process of this machine opens it."""
    return f"/proc/{os.getpid()}/fd/{fd}"
