"""Local files as a `Store`. A root on NFS works too, since `create_exclusive` and `rename` are atomic there."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from mpca.private import make_folder, opener
from mpca.storage.blocks import Piece

__all__ = ["LocalStore"]


class LocalStore:
    """Files below one folder, which is made with the first file. As thread-safe as the file system.

    Args:
        root: the folder. The folder itself, and folders in it, may be links.
        private: whether new files and folders are for their owner alone, regardless of the umask.
        links: whether a file may be a link. False for a run's folder: only the run writes there, so a link was made by
            somebody else.
    """

    def __init__(self, root: str | os.PathLike[str], private: bool = False, links: bool = False) -> None:
        self.root, self._links = Path(root).absolute(), links
        self._opener = opener if private else None
        self._seen = False  # whether the root was there

    def create_exclusive(self, path: str, data: bytes) -> None:
        target = self._make_room(path)
        with open(target, "xb", opener=self._opener) as file:
            file.write(data)

    def write(self, path: str, *pieces: Piece) -> None:
        with open(self._make_room(path), "wb", opener=self._opener) as file:
            file.writelines(pieces)

    def sync(self, path: str) -> None:
        fd = os.open(self._at(path), os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        source, target = self._at(old), self._make_room(new)
        if source.is_dir():
            if target.exists():  # rename itself refuses only a folder that is not empty
                raise FileExistsError(errno.EEXIST, "already there", str(target))
            source.rename(target)
        else:  # rename would replace a file that another process makes just now; link does not
            os.link(source, target)
            source.unlink()

    def names(self, path: str) -> list[str]:
        folder = self._at(path)
        return sorted(os.listdir(folder)) if folder.is_dir() else []

    def read(self, path: str) -> bytes:
        with open(self._open(path), "rb") as file:
            return file.read()

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        with open(self._open(path), "rb", buffering=0) as file:
            file.seek(offset)
            data = file.read(length)
            while 0 < len(data) < length and (more := file.read(length - len(data))):  # a signal may cut a read short
                data += more
            return data

    def size(self, path: str) -> int:
        target = self._at(path)
        found = os.stat(target, follow_symlinks=self._links)
        _check_plain(found, target)
        return found.st_size

    def exists(self, path: str) -> bool:
        return self._at(path).exists()

    def delete(self, path: str) -> None:
        target = self._at(path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def rmdir(self, path: str) -> None:
        with suppress(FileNotFoundError):
            try:
                self._at(path).rmdir()
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise

    def describe(self, path: str) -> str:
        return str(self._at(path))

    def _at(self, path: str) -> Path:
        target = self.root.joinpath(*path.split("/"))
        if ".." in path.split("/") or path.startswith("/"):
            raise ValueError(f"path leaves the store: {path!r}")
        return target

    def _open(self, path: str) -> int:
        """Open a file for reading. Never waits, as opening a pipe would."""
        self.size(path)  # raises a clearer error than open
        target = self._at(path)
        fd = os.open(target, os.O_RDONLY | os.O_NONBLOCK | (0 if self._links else os.O_NOFOLLOW))
        try:
            _check_plain(os.fstat(fd), target)
        except OSError:
            os.close(fd)
            raise
        return fd

    def _make_room(self, path: str) -> Path:
        target = self._at(path)
        if self._opener is None:
            target.parent.mkdir(parents=True, exist_ok=True)
            return target
        if not self._seen:
            make_folder(self.root)
            self._seen = True
        if not target.parent.is_dir():  # not with those above: who moves a run's folder away meanwhile gets no new one
            for folder in reversed([one for one in target.parents if self.root in one.parents]):
                make_folder(folder, parents=False)
        return target


def _check_plain(found: os.stat_result, path: Path) -> None:
    """Raise OSError for anything but a plain file: a folder, a forbidden link, or a pipe or device, which may never end."""
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder", str(path))
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "is a symbolic link, which is not followed", str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "is no plain file", str(path))
