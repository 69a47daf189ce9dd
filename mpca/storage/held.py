"""A local file that its maker keeps locked: the kernel takes the lock away when the maker dies, however it dies.

`flock` belongs to the open file, so it outlives a rename, and a number of a process that is used again means nothing. Where a
file system has no such locks, or does not show those of other machines, the answer is None and somebody else must know.
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
#: File systems that only one machine mounts: who holds a lock there is seen from everywhere that the file is.
_OF_ONE_MACHINE = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "bcachefs", "tmpfs", "ramfs", "overlay"}
_MOUNTS = Path("/proc/self/mountinfo")


def create(target: Path, data: bytes, flock: Flock = fcntl.flock) -> int:
    """Make a file that did not exist, whole and locked from the moment it is there; close the descriptor to let go.

    Raises:
        FileExistsError: somebody else made it first.
        OSError: no right, no room.
    """
    fd, temporary = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        os.fchmod(fd, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
        with suppress(OSError):  # no locks here: `held` says so to who asks
            flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.link(temporary, target)
    except BaseException:
        os.close(fd)
        raise
    finally:
        os.unlink(temporary)
    return fd


def held(path: Path, flock: Flock = fcntl.flock, mounts: Path = _MOUNTS) -> bool | None:
    """Whether its maker still has it; None when the file system does not say."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # over NFS only a writer may lock alone
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
    """Whether locks of every machine are seen on that device. A line: id parent major:minor ... - type source options."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        if before.split()[2] != wanted:
            continue
        if kind in _OF_ONE_MACHINE:
            return True
        return kind in ("nfs", "nfs4") and "local_lock=none" in options.split()[-1].split(",")
    return False  # a subvolume of btrfs has a device that no line names
