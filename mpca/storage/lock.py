"""Who may write a run's backups: one driver, by a file that only one of two can make (P24).

A driver that takes over raises the epoch, and the one before it finds at its next write that the lock is no longer its
own. Whether the owner of a lock still lives is for the caller to say (a process here, an application on YARN).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mpca.errors import BackupError
from mpca.storage.store import Store

__all__ = ["RunLock"]


class RunLock:
    """The right to write, held from `claim` to `release`."""

    def __init__(self, store: Store, path: str = "lock") -> None:
        self._store, self._path = store, path
        self._mine: dict[str, Any] | None = None

    def claim(self, owner: str, alive: Callable[[str], bool]) -> int:
        """Take the lock; returns the epoch, one above that of the owner before.

        Args:
            owner: who we are, for the message that another driver gets.
            alive: whether the owner of a lock that is there still lives.

        Raises:
            BackupError: another driver holds it, or took it in this moment.
        """
        before = self._holder()
        if before is not None:
            if alive(before["owner"]):
                raise self._refusal(before)
            try:  # out of the way by rename, which only one of two can do to the same epoch
                self._store.rename(self._path, f"{self._path}.epoch-{before['epoch']}")
            except OSError:
                raise self._refusal(self._holder() or before) from None
        epochs = [int(name.rpartition("-")[2]) for name in self._former()]
        mine: dict[str, Any] = {"owner": owner, "epoch": max(epochs, default=0) + 1}
        try:
            self._store.create_exclusive(self._path, json.dumps(mine).encode())
        except FileExistsError:
            raise self._refusal(self._holder() or {"owner": "unknown", "epoch": 0}) from None
        self._store.sync(self._path)
        self._mine = mine
        return int(mine["epoch"])

    def check(self) -> None:
        """Raises BackupError when another driver has taken over."""
        holder = self._holder()
        if holder != self._mine:
            raise self._refusal(holder or {"owner": "nobody", "epoch": 0})

    def release(self) -> None:
        """Give it up; the epoch stays known, so that the next owner's is higher. Not an error when it was lost."""
        if self._mine is not None and self._holder() == self._mine:
            self._store.rename(self._path, f"{self._path}.epoch-{self._mine['epoch']}")
        self._mine = None

    def owners(self) -> list[str]:
        """All who have had it, by epoch; the last one has it, or had it last."""
        folder = self._path.rpartition("/")[0]
        former = [f"{folder}/{name}" if folder else name for name in self._former()]
        known = {int(path.rpartition("-")[2]): self._holder(path) for path in former}
        known[max(known, default=0) + 1] = self._holder()
        return [holder["owner"] for _, holder in sorted(known.items()) if holder is not None]

    def _holder(self, path: str = "") -> dict[str, Any] | None:
        try:
            text = self._store.read(path or self._path)
        except FileNotFoundError:
            return None
        try:
            holder: dict[str, Any] = json.loads(text)
            return {"owner": str(holder["owner"]), "epoch": int(holder["epoch"])}
        except (ValueError, KeyError, TypeError):  # its maker was killed in the middle: nobody owns it
            epochs = [int(name.rpartition("-")[2]) for name in self._former()]
            return {"owner": "", "epoch": max(epochs, default=0) + 1}

    def _former(self) -> list[str]:
        folder, _, name = self._path.rpartition("/")
        return [one for one in self._store.names(folder) if one.startswith(f"{name}.epoch-")]

    def _refusal(self, holder: dict[str, Any]) -> BackupError:
        return BackupError(
            f"another driver writes here: path={self._store.describe(self._path)}, owner={holder['owner']}, "
            f"epoch={holder['epoch']}; stop it, or use another run folder"
        )
