"""Local files as a `Store`. A root on NFS works too, where `create_exclusive` and `rename` are atomic as well."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

__all__ = ["LocalStore"]


class LocalStore:
    """Files below one folder, which is made when the first file is. Thread-safe as the file system is."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).absolute()

    def create_exclusive(self, path: str, data: bytes) -> None:
        target = self._make_room(path)
        with target.open("xb") as file:
            file.write(data)

    def write(self, path: str, data: bytes) -> None:
        self._make_room(path).write_bytes(data)

    def sync(self, path: str) -> None:
        fd = os.open(self._at(path), os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        source, target = self._at(old), self._make_room(new)
        if source.is_dir():
            if target.exists():  # rename itself refuses a folder that holds something
                raise FileExistsError(errno.EEXIST, "already there", str(target))
            source.rename(target)
        else:  # rename would replace a file that appears in this moment; link refuses to
            os.link(source, target)
            source.unlink()

    def names(self, path: str) -> list[str]:
        folder = self._at(path)
        return sorted(os.listdir(folder)) if folder.is_dir() else []

    def read(self, path: str) -> bytes:
        return self._at(path).read_bytes()

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        with self._at(path).open("rb", buffering=0) as file:
            file.seek(offset)
            data = file.read(length)
            while 0 < len(data) < length and (more := file.read(length - len(data))):  # a signal may cut a read short
                data += more
            return data

    def size(self, path: str) -> int:
        return self._at(path).stat().st_size

    def exists(self, path: str) -> bool:
        return self._at(path).exists()

    def delete(self, path: str) -> None:
        target = self._at(path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def describe(self, path: str) -> str:
        return str(self._at(path))

    def _at(self, path: str) -> Path:
        target = self.root.joinpath(*path.split("/"))
        if ".." in path.split("/") or path.startswith("/"):
            raise ValueError(f"path leaves the store: {path!r}")
        return target

    def _make_room(self, path: str) -> Path:
        target = self._at(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        return target
