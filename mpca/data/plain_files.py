"""Reads files that a user's list names. Anything but a plain file is refused, without waiting."""

from __future__ import annotations

import os
import stat

from mpca.errors import BadImage

__all__ = ["read_plain"]

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def read_plain(path: str, offset: int = 0, length: int | None = None) -> bytes:
    """Read `length` bytes from `offset` on, or all bytes from there.

    Raises:
        BadImage: the path is not a plain file, or the file is too short.
        OSError: the file cannot be opened or read.
    """
    # Without O_NONBLOCK, opening or reading a FIFO waits for a writer, perhaps for ever.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise BadImage(f"not a plain file: {_KINDS.get(stat.S_IFMT(found.st_mode), 'something else')}")
        data = os.pread(fd, found.st_size - offset if length is None else length, offset)
    finally:
        os.close(fd)
    if length is not None and len(data) != length:
        raise BadImage(f"truncated: bytes={len(data)}, expected={length}")
    return data
