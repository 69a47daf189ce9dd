"""The port to a file system: local files, HDFS through the JVM or WebHDFS, or memory in the simulator.

Small on purpose, and no richer than HDFS: no write in the middle of a file, no rename over something that exists. Paths are
relative to the store's root, with "/" between names. Nothing is promised to survive a crash until `sync` returned.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["Store"]


class Store(Protocol):
    """Every call raises OSError when the storage fails; FileNotFoundError and FileExistsError where they fit."""

    def create_exclusive(self, path: str, data: bytes) -> None:
        """Make a file that did not exist, of which two callers only one succeeds; folders above it are made.

        Raises:
            FileExistsError: somebody else made it first.
        """
        ...

    def write(self, path: str, data: bytes) -> None:
        """Make or replace a file. Not atomic: a reader, or a crash, may see a part. Folders above it are made."""
        ...

    def sync(self, path: str) -> None:
        """Make what was written to a file, or renamed into and out of a folder, survive a crash of the machine."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Move a file or folder at once: everybody sees it under the one or the other name.

        Raises:
            FileExistsError: `new` exists.
        """
        ...

    def names(self, path: str) -> list[str]:
        """Names in a folder, sorted; none when there is no such folder."""
        ...

    def read(self, path: str) -> bytes: ...

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset` on; fewer, or none, where the file ends before."""
        ...

    def size(self, path: str) -> int:
        """Bytes of a file."""
        ...

    def exists(self, path: str) -> bool: ...

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing happens when there is none."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove a folder that is empty; one that is not, or is not there, stays as it is."""
        ...

    def describe(self, path: str) -> str:
        """The path as a person finds it: absolute, or with its scheme."""
        ...
