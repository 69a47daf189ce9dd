"""The port to a file system: local files, HDFS through the JVM or WebHDFS, or memory in the simulator.

It is small, and has only what HDFS has: no write in the middle of a file, no rename over an existing file. Paths are relative
to the store's root, with "/" between names. Data may be lost in a crash until `sync` has returned.
"""

from __future__ import annotations

from typing import Protocol

from mpca.storage.blocks import Piece

__all__ = ["Store"]


class Store(Protocol):
    """Every method raises OSError when the storage fails: FileNotFoundError and FileExistsError where they fit."""

    def create_exclusive(self, path: str, data: bytes) -> None:
        """Make a file that did not exist, and the folders above it. Of two callers only one succeeds.

        Raises:
            FileExistsError: the file exists.
        """
        ...

    def write(self, path: str, *pieces: Piece) -> None:
        """Make or replace a file, and the folders above it. Not atomic: a reader may see a part; so may one after a crash.

        Args:
            path: the file.
            pieces: its bytes, one piece behind the other.
        """
        ...

    def sync(self, path: str) -> None:
        """Make a file's data, or a folder's renames, survive a crash of the machine."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Move a file or folder atomically.

        Raises:
            FileExistsError: `new` exists.
        """
        ...

    def names(self, path: str) -> list[str]:
        """Names in a folder, sorted; an empty list when there is no such folder."""
        ...

    def read(self, path: str) -> bytes: ...

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset` on; fewer, or none, when the file ends earlier."""
        ...

    def size(self, path: str) -> int:
        """Size of a file in bytes."""
        ...

    def exists(self, path: str) -> bool: ...

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with its content; does nothing when there is none."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove a folder if it exists and is empty."""
        ...

    def describe(self, path: str) -> str:
        """The path for people: absolute, or with its scheme."""
        ...
