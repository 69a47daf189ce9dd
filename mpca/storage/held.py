"""A local file that its maker keeps locked. The kernel frees the lock when the maker dies, for any reason.

`flock` belongs to the open file, so it outlives a rename, and does not depend on process ids, which are reused. Where a file
system has no such locks, or does not show those of other machines, the answer is None, and the caller needs another way.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["Flock", "create", "held"]

Flock = Callable[[int, int], None]
#: File systems that only one machine mounts: every process that sees the file also sees its lock.
_OF_ONE_MACHINE = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "bcachefs", "tmpfs", "ramfs", "overlay"}
_MOUNTS = Path("/proc/self/mountinfo")


def create(target: Path, data: bytes, flock: Flock = fcntl.flock) -> int:
    """Make a file that did not exist. It is complete and locked from the moment it exists.

    Args:
        target: path of the file.
        data: its content.
        flock: as `fcntl.flock`.

    Returns:
        The file's descriptor; closing it frees the lock.

    Raises:
        FileExistsError: the file exists.
        OSError: no permission, or no space.
    """
    fd, temporary = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        os.fchmod(fd, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
        with suppress(OSError):  # the file system has no locks: `held` then returns None
            flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.link(temporary, target)
    except BaseException:
        os.close(fd)
        raise
    finally:
        os.unlink(temporary)
    return fd


def held(path: Path, flock: Flock = fcntl.flock, mounts: Path = _MOUNTS) -> bool | None:
    """Whether the file's maker still holds its lock; None when the file system cannot tell."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # over NFS an exclusive lock needs a file open for writing
    except OSError:
        return None
    try:
        flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        return False if _shows_all(os.fstat(fd).st_dev, mounts.read_text()) else None
    finally:
        os.close(fd)


def _shows_all(device: int, mounts: str) -> bool:
    """Whether a device shows locks of all machines. A line of `mounts`: id parent major:minor ... - type source options."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        if before.split()[2] != wanted:
            continue
        if kind in _OF_ONE_MACHINE:
            return True
        return kind in ("nfs", "nfs4") and "local_lock=none" in options.split()[-1].split(",")
    return False  # no line names the device of a btrfs subvolume
