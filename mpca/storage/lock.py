"""Who may write a run's backups: one driver, by a file that only one of two can make.

A driver that takes over raises the epoch, and the one before it finds at its next write that the lock is no longer its
own. Whether the holder of a lock still lives is for the caller to say: a lock of the kernel (`held`), a beat on HDFS.
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
    """What a lock says."""

    owner: str  # for people; "" when its maker was killed while it wrote it
    epoch: int  # of the driver's attempts
    process: Process | None = None


class RunLock:
    """The right to write, held from `claim` to `release` or `withdraw`.

    Args:
        store: the run's folder.
        path: of the lock in it.
        create: makes the lock's file, as `Store.create_exclusive`; None: by the store.
    """

    def __init__(self, store: Store, path: str = "lock", create: Callable[[str, bytes], None] | None = None) -> None:
        self._store, self._path = store, path
        self._create = create or store.create_exclusive
        self._mine: Holder | None = None
        self._set_aside = ""  # where the lock of a dead holder went

    def claim(self, owner: str, alive: Callable[[Holder], bool | None], above: int = 0, process: Process | None = None) -> int:
        """Take the lock; returns the epoch, one above all before.

        Args:
            owner: who we are, for the message that another driver gets.
            alive: whether the holder of a lock that is there still lives; None when that cannot be seen.
            above: the highest epoch that anything of the run says of itself, beside the locks.
            process: ours, for `alive` of the next one.

        Raises:
            BackupError: another driver holds it, or took it in this moment.
            OSError: storage failed; everything is as it was.
        """
        before = self._holder()
        if before is not None:
            self._refuse_living(before, alive)
            aside = f"{self._path}.epoch-{before.epoch}"
            try:  # out of the way by rename, which only one of two can do to the same epoch
                self._store.rename(self._path, aside)
            except OSError:
                raise self._refusal(self._holder() or before) from None
            self._set_aside = aside
        mine = Holder(owner, max([above, *self.epochs()]) + 1, process)
        try:
            self._create(self._path, _text(mine))
        except FileExistsError:
            raise self._refusal(self._holder() or Holder("unknown", 0)) from None
        except OSError:
            with suppress(OSError):
                half = self._holder()
                if half is not None and half.owner in ("", owner):  # ours: only one could make it
                    self._store.delete(self._path)
                self._put_back()
            raise
        self._store.sync(self._path)
        self._mine = mine
        return mine.epoch

    def refuse_living(self, alive: Callable[[Holder], bool | None]) -> None:
        """Raises BackupError when another driver holds it; changes nothing."""
        before = self._holder()
        if before is not None:
            self._refuse_living(before, alive)

    def check(self) -> None:
        """Raises BackupError when another driver has taken over, or the lock is gone."""
        holder = self._holder()
        if holder != self._mine:
            raise self._refusal(holder or Holder("nobody", 0))

    def rival(self) -> BackupError | None:
        """What there is to say when another driver has taken over; a lock that is merely gone is nobody's."""
        holder = self._holder()
        return None if holder in (None, self._mine) else self._refusal(holder)

    def release(self) -> None:
        """Give it up; the epoch stays known, so that the next owner's is higher. Not an error when it was lost."""
        if self._mine is not None and self._holder() == self._mine:
            self._store.rename(self._path, f"{self._path}.epoch-{self._mine.epoch}")
        self._mine = None

    def withdraw(self) -> None:
        """As if it had never been claimed: nothing was written under it, and its epoch is free again."""
        if self._mine is not None and self._holder() == self._mine:
            self._store.delete(self._path)
            self._put_back()
        self._mine = None

    def owners(self) -> list[str]:
        """All who have had it, by epoch; the last one has it, or had it last."""
        known = {epoch: self._holder(f"{self._path}.epoch-{epoch}") for epoch in self.epochs()}
        known[max(known, default=0) + 1] = self._holder()
        return [holder.owner for _, holder in sorted(known.items()) if holder is not None]

    def epochs(self) -> list[int]:
        """Of the attempts that have given it up, or lost it."""
        folder, _, name = self._path.rpartition("/")
        start = f"{name}.epoch-"
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
            with suppress(FileExistsError):  # another driver has made its own since
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
            return Holder(str(said["owner"]), int(said["epoch"]), None if process is None else Process.from_json(process))
        except (ValueError, KeyError, TypeError, AttributeError):  # its maker was killed in the middle
            return Holder("", max(self.epochs(), default=0) + 1)

    def _refusal(self, holder: Holder, seen: bool = True) -> BackupError:
        where = self._store.describe(self._path)
        remedy = "stop it, or use another run folder"
        if not seen:
            remedy = f"whether it still runs cannot be seen from here: {remedy}; if it is gone for good, remove {where}"
        return BackupError(f"another driver writes here: path={where}, owner={holder.owner}, epoch={holder.epoch}; {remedy}")


def _text(holder: Holder) -> bytes:
    process = {} if holder.process is None else {"process": holder.process.to_json()}
    return json.dumps({"owner": holder.owner, "epoch": holder.epoch, **process}).encode()
