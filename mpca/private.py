"""Files and folders that only their owner may read, whatever the umask: a run folder holds models and settings.

Not for data sets, which other people read: those follow the umask.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

__all__ = ["FILE", "FOLDER", "make_folder", "opener", "replace_file", "who_else_writes"]

FILE, FOLDER = 0o600, 0o700


def opener(path: str, flags: int) -> int:
    """For `open(path, mode, opener=opener)`: makes a new or existing file readable for its owner alone.

    Raises:
        OSError: as `os.open`.
    """
    fd = os.open(path, flags | os.O_CLOEXEC, FILE)
    try:
        now = os.fstat(fd)
        # The umask may have removed rights of the owner too. Devices, and other people's files, cannot be changed.
        if stat.S_ISREG(now.st_mode) and stat.S_IMODE(now.st_mode) != FILE and now.st_uid == os.geteuid():
            os.fchmod(fd, FILE)
    except OSError:
        os.close(fd)
        raise
    return fd


def make_folder(path: Path, parents: bool = True) -> bool:
    """Make a folder that only its owner may enter; returns False when it exists already, and does not change it.

    Missing folders above it follow the umask, but only their owner may write to them: a person who may write there could
    replace this folder by another.

    Raises:
        FileExistsError: a file has that name.
        OSError: no permission, or no space; without `parents`, the folder above is missing.
    """
    for parent in reversed(path.parents) if parents else ():
        if not parent.exists():
            _make(parent, 0o755)
    if path.is_dir():
        return False
    return _make(path, FOLDER)


def who_else_writes(path: Path) -> str:
    """Who else may put something into an existing folder; empty: nobody, or there is no such folder.

    A user's own group, which many systems make for each user, is no one else.
    """
    try:
        now = path.stat()
    except OSError:
        return ""
    mode = f"mode {stat.S_IMODE(now.st_mode):04o}"
    if now.st_uid not in (os.geteuid(), 0):
        return f"its owner, uid {now.st_uid}"
    if now.st_mode & stat.S_IWOTH:
        return f"everybody ({mode})"
    if now.st_mode & stat.S_IWGRP and now.st_gid != os.getegid():
        return f"group {now.st_gid} ({mode})"
    return ""


def _make(path: Path, mode: int) -> bool:
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if path.is_dir():  # another process has just made it
            return False
        raise
    made = stat.S_IMODE(path.stat().st_mode)
    wanted = FOLDER | made if mode != FOLDER else FOLDER
    if made != wanted:
        os.chmod(path, wanted)
    return True


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically: a reader sees the old file or the whole new one.

    Raises:
        OSError: the new file cannot be written; the old one is unchanged.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb", opener=opener) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
