"""A `Store` in memory with planned faults: to crash a writer at each of its steps.

It keeps two states: the files that a reader sees now, and the files that would survive a crash of the machine. `sync` copies
from the first to the second. Operations that change files are numbered from 0; `faults` says which of them fail, and how:

========  ===========================================================================================
crash     nothing happens; the call raises `Crash`, as does every later call, until `reboot`
torn      half of the data is written, then as `crash`; as `crash` for an operation without data
full      half of the data is written, then ENOSPC; the writer lives
lost      the operation is done, but the writer gets EIO (a lost reply)
========  ===========================================================================================
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

from mpca.storage.blocks import Piece

__all__ = ["Crash", "MemoryStore"]


class Crash(BaseException):
    """The process died here. Not an Exception, so that the code under test does not catch it."""


class MemoryStore:
    """The store of this module. `fired` lists the faults that happened; a test asserts it.

    Args:
        faults: operation number -> fault.
    """

    def __init__(self, faults: Mapping[int, str] | None = None) -> None:
        self.faults = dict(faults or {})
        self.fired: list[tuple[int, str, str]] = []  # (operation number, fault, operation)
        self.operations = 0
        self.asked = 0  # calls of any kind
        self.away = range(0)  # numbers of calls that get no answer
        self._seen: dict[str, bytes] = {}
        self._kept: dict[str, bytes] = {}
        self._pending: list[tuple[str, str]] = []  # renames that are not synced yet
        self._dead = False

    # ---- the port ----

    def create_exclusive(self, path: str, data: bytes) -> None:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, "already there", path)
        self._put("create_exclusive", path, data)

    def write(self, path: str, *pieces: Piece) -> None:
        self._put("write", path, b"".join(pieces))

    def sync(self, path: str) -> None:
        if self._fault("sync", path):
            return
        if path in self._seen:
            self._kept[path] = self._seen[path]
        else:
            for old, new in self._pending:
                self._move(self._kept, old, new)
            self._pending.clear()
        self._reply()

    def rename(self, old: str, new: str) -> None:
        self._alive()
        if not self.exists(old):
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        if self.exists(new):
            raise FileExistsError(errno.EEXIST, "already there", new)
        if self._fault("rename", old):
            return
        self._move(self._seen, old, new)
        self._pending.append((old, new))
        self._reply()

    def names(self, path: str) -> list[str]:
        self._alive()
        start = f"{path}/" if path else ""
        return sorted({name[len(start) :].split("/")[0] for name in self._seen if name.startswith(start)})

    def read(self, path: str) -> bytes:
        self._alive()
        if path not in self._seen:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return self._seen[path]

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self.read(path)[offset : offset + length]

    def size(self, path: str) -> int:
        return len(self.read(path))

    def exists(self, path: str) -> bool:
        self._alive()
        return path in self._seen or any(name.startswith(f"{path}/") for name in self._seen)

    def delete(self, path: str) -> None:
        if self._fault("delete", path):
            return
        for files in (self._seen, self._kept):
            for name in [name for name in files if name == path or name.startswith(f"{path}/")]:
                del files[name]
        self._reply()

    def rmdir(self, path: str) -> None:
        """Do nothing: a folder exists only while it has a file."""

    def describe(self, path: str) -> str:
        return f"memory:{path}"

    # ---- for tests ----

    def reboot(self, machine: bool = False, renames_kept: bool = False) -> None:
        """Let calls work again.

        Args:
            machine: the machine crashed: data that were not synced are lost.
            renames_kept: renames that were not synced are kept, even with `machine`.
        """
        self._dead = False
        self.faults = {}
        if machine:
            for old, new in self._pending if renames_kept else ():
                self._move(self._kept, old, new)
            self._seen = dict(self._kept)
        self._pending.clear()

    def damage(self, path: str, data: bytes | None) -> None:
        """Replace a file's stored bytes, without any rule or fault; None removes the file."""
        for files in (self._seen, self._kept):
            if data is None:
                files.pop(path, None)
            else:
                files[path] = data

    def paths(self) -> list[str]:
        """Paths of all files."""
        return sorted(self._seen)

    # ---- inside ----

    def _put(self, what: str, path: str, data: bytes) -> None:
        if self._fault(what, path, data):
            return
        self._seen[path] = bytes(data)
        self._reply()

    def _fault(self, what: str, path: str, data: bytes = b"") -> bool:
        """Count the operation, and carry out its fault; True when nothing is left to do."""
        self._alive()
        number, self.operations = self.operations, self.operations + 1
        fault = self.faults.get(number)
        if fault is None:
            return False
        self.fired.append((number, fault, f"{what} {path}"))
        if fault in ("torn", "full") and what in ("write", "create_exclusive"):
            self._seen[path] = bytes(data[: len(data) // 2])
        if fault in ("crash", "torn"):
            self._dead = True
            raise Crash(f"operation {number}: {what} {path}")
        if fault == "full":
            raise OSError(errno.ENOSPC, "no space left", path)
        assert fault == "lost", fault
        self._lost = True
        return False

    _lost = False

    def _reply(self) -> None:
        if self._lost:
            self._lost = False
            raise OSError(errno.EIO, "reply lost")

    def _alive(self) -> None:
        if self._dead:
            raise Crash("this writer is dead")
        number, self.asked = self.asked, self.asked + 1
        if number in self.away:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody answers")

    @staticmethod
    def _move(files: dict[str, bytes], old: str, new: str) -> None:
        for name in [name for name in files if name == old or name.startswith(f"{old}/")]:
            files[new + name[len(old) :]] = files.pop(name)
