"""Files and folders that only their owner may read, whatever the umask: a run folder holds models and settings.

Not for data sets, which other people read: those are made as the umask says.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

__all__ = ["FILE", "FOLDER", "make_folder", "opener", "replace_file"]

FILE, FOLDER = 0o600, 0o700


def opener(path: str, flags: int) -> int:
    """For `open(path, mode, opener=opener)`: a file that is made is the owner's alone, and so is one that was there.

    Raises:
        OSError: as `os.open`.
    """
    fd = os.open(path, flags | os.O_CLOEXEC, FILE)
    try:
        now = os.fstat(fd)
        # The umask may have taken rights from the owner too. What is no file, or somebody else's, cannot be changed.
        if stat.S_ISREG(now.st_mode) and stat.S_IMODE(now.st_mode) != FILE and now.st_uid == os.geteuid():
            os.fchmod(fd, FILE)
    except OSError:
        os.close(fd)
        raise
    return fd


def make_folder(path: Path) -> bool:
    """Make a folder that only its owner may enter; False when there is one already, which stays as it is.

    Missing folders above it are made as the umask says, except that nobody else may write to them: who may can put
    another folder in the place of this one.

    Raises:
        FileExistsError: something else has that name.
        OSError: no right, no room.
    """
    for parent in reversed(path.parents):
        if not parent.exists():
            _make(parent, 0o755)
    if path.is_dir():
        return False
    return _make(path, FOLDER)


def _make(path: Path, mode: int) -> bool:
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if path.is_dir():  # somebody else was quicker
            return False
        raise
    made = stat.S_IMODE(path.stat().st_mode)
    wanted = FOLDER | made if mode != FOLDER else FOLDER
    if made != wanted:
        os.chmod(path, wanted)
    return True


def replace_file(path: Path, data: bytes) -> None:
    """Put a file in the place of another at once: a reader sees the old one or the whole new one.

    Raises:
        OSError: the old one is as it was.
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
