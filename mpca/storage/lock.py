"""The right to write a run's backups. One driver has it: the maker of a file that only one process can make.

A driver that takes over raises the term; the driver before it finds at its next write that it has lost the lock. The caller
says whether the holder of a lock still lives: by a lock of the kernel (`held`), or by a heartbeat on HDFS.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mpca.errors import BackupError
from mpca.storage.process import Process
from mpca.storage.store import Store

__all__ = ["Holder", "RunLock"]


@dataclass(frozen=True)
class Holder:
    """The content of a lock."""

    owner: str  # for people; "" when the maker was killed while it wrote the file
    term: int  # number of the driver's attempt
    process: Process | None = None


class RunLock:
    """The right to write, held from `claim` to `release` or `withdraw`.

    Args:
        store: the run's folder.
        path: the lock's path in the store.
        create: makes the lock's file, as `Store.create_exclusive`; None: the store makes it.
    """

    def __init__(self, store: Store, path: str = "lock", create: Callable[[str, bytes], None] | None = None) -> None:
        self._store, self._path = store, path
        self._create = create or store.create_exclusive
        self._mine: Holder | None = None
        self._set_aside = ""  # path to which the lock of a dead holder was moved

    def claim(self, owner: str, alive: Callable[[Holder], bool | None], above: int = 0, process: Process | None = None) -> int:
        """Take the lock; returns its term, which is above all earlier ones.

        Args:
            owner: names this driver, in the error that another driver gets.
            alive: whether the holder of an existing lock still lives; None when this cannot be seen.
            above: the highest term in the run's files other than locks.
            process: this process, for the next driver's `alive`.

        Raises:
            BackupError: another driver holds the lock, or has just taken it.
            OSError: storage failed; nothing has changed.
        """
        before = self._holder()
        if before is not None:
            self._refuse_living(before, alive)
            aside = f"{self._path}.term-{before.term}"
            try:  # move the old lock away; of two drivers only one can rename the lock of one term
                self._store.rename(self._path, aside)
            except OSError:
                now = self._holder()
                if now == before:  # nobody has moved it: storage failed
                    raise
                raise self._refusal(now or before) from None
            self._set_aside = aside
        mine = Holder(owner, max([above, *self.terms()]) + 1, process)
        try:
            self._create(self._path, _text(mine))
        except FileExistsError:
            raise self._refusal(self._holder() or Holder("unknown", 0)) from None
        except OSError:
            with suppress(OSError):
                half = self._holder()
                if half is not None and half.owner in ("", owner):  # our own file, since only one driver could make it
                    self._store.delete(self._path)
                self._put_back()
            raise
        self._store.sync(self._path)
        self._mine = mine
        return mine.term

    def refuse_living(self, alive: Callable[[Holder], bool | None]) -> None:
        """Raise BackupError when a living driver holds the lock. Changes nothing."""
        before = self._holder()
        if before is not None:
            self._refuse_living(before, alive)

    def check(self) -> None:
        """Raise BackupError when another driver has taken over, or when the lock is gone."""
        holder = self._holder()
        if holder != self._mine:
            raise self._refusal(holder or Holder("nobody", 0))

    def rival(self) -> BackupError | None:
        """The error when another driver has taken over; None otherwise, even if the lock is gone."""
        holder = self._holder()
        return None if holder in (None, self._mine) else self._refusal(holder)

    def release(self) -> None:
        """Give the lock up. Its term is kept, so that the next owner's is higher. No error if the lock was lost before."""
        if self._mine is not None and self._holder() == self._mine:
            self._store.rename(self._path, f"{self._path}.term-{self._mine.term}")
        self._mine = None

    def withdraw(self) -> None:
        """Undo `claim`, when nothing was written under the lock: its term can be used again."""
        if self._mine is not None and self._holder() == self._mine:
            self._store.delete(self._path)
            self._put_back()
        self._mine = None

    def owners(self) -> list[str]:
        """All owners, in the order of their terms; the last one has the lock, or had it last."""
        known = {term: self._holder(f"{self._path}.term-{term}") for term in self.terms()}
        known[max(known, default=0) + 1] = self._holder()
        return [holder.owner for _, holder in sorted(known.items()) if holder is not None]

    def terms(self) -> list[int]:
        """Epochs of the attempts that have given the lock up or lost it."""
        folder, _, name = self._path.rpartition("/")
        start = f"{name}.term-"
        return sorted(
            int(one[len(start) :])
            for one in self._store.names(folder)
            if one.startswith(start) and one[len(start) :].isdecimal()
        )

    # ---- inside ----

    def _refuse_living(self, holder: Holder, alive: Callable[[Holder], bool | None]) -> None:
        lives = alive(holder)
        if lives is not False:
            raise self._refusal(holder, seen=lives is True)

    def _put_back(self) -> None:
        if self._set_aside:
            with suppress(FileExistsError):  # another driver has made its own lock since
                self._store.rename(self._set_aside, self._path)
        self._set_aside = ""

    def _holder(self, path: str = "") -> Holder | None:
        try:
            text = self._store.read(path or self._path)
        except FileNotFoundError:
            return None
        try:
            said: dict[str, Any] = json.loads(text)
            process = said.get("process")
            return Holder(str(said["owner"]), int(said["term"]), None if process is None else Process.from_json(process))
        except (ValueError, KeyError, TypeError, AttributeError):  # the maker was killed while it wrote
            return Holder("", max(self.terms(), default=0) + 1)

    def _refusal(self, holder: Holder, seen: bool = True) -> BackupError:
        where = self._store.describe(self._path)
        remedy = "stop it, or use another run folder"
        if not seen:
            remedy = f"this machine cannot see whether it still runs: {remedy}; if it has ended, remove {where}"
        return BackupError(f"another driver writes here: path={where}, owner={holder.owner}, term={holder.term}; {remedy}")


def _text(holder: Holder) -> bytes:
    process = {} if holder.process is None else {"process": holder.process.to_json()}
    return json.dumps({"owner": holder.owner, "term": holder.term, **process}).encode()
