"""A run in a folder of this machine."""

from __future__ import annotations

import logging
import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mpca.api.location.files import OwnedFolder, begin_records, owner_text, refuse_foreign, unwritable
from mpca.errors import BackupError
from mpca.records import Backlog, RunFolder, RunRecord
from mpca.storage import Holder, LocalStore, Location, Process, RunLock, held
from mpca.timeouts import BEAT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mpca.config.resolved import Resolved
    from mpca.spark.yarn.submitted import ApplicationInfo

__all__ = ["LocalRunLocation"]

log = logging.getLogger("mpca.run")


class LocalRunLocation(OwnedFolder):
    """A folder of this machine."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.folder = RunFolder(path)
        self._stack = stack
        self.root = Location.parse(path)
        self._store = LocalStore(path, private=True)
        self._lock = RunLock(self._store, create=self._create_lock)
        self._held = -1  # descriptor of the lock's file, which the kernel keeps locked for us
        self._made = self._began = False
        self._lost: BackupError | None = None
        self._next_look = 0.0

    @property
    def shown(self) -> Path | str:
        return self.folder.path

    @property
    def lost(self) -> BackupError | None:
        """The error once another driver has taken the folder over, after somebody removed our lock; else None."""
        now = time.monotonic()
        if self._lost is None and self._began and now >= self._next_look:
            self._next_look = now + BEAT_S
            with suppress(OSError):  # a folder that cannot be read has no other owner yet
                self._lost = self._lock.rival()
        return self._lost

    def take(self, session: SparkSession | None, resume: bool, application: ApplicationInfo | None, above: int = 0) -> int:
        """Make the folder, or go on in it, as its only owner.

        Until `begin` only the lock is written. If `begin` never comes, everything is left as it was.

        Args:
            session: of Spark; not needed here.
            resume: whether the folder may exist.
            application: of the session, if there is one.
            above: the highest term that a backup of this run has.

        Returns:
            The term of this attempt.

        Raises:
            ConfigError: the folder exists and this is not a resume; or it is somebody else's, or cannot be written.
            BackupError: another driver owns it.
        """
        self._made = self.folder.create(resume)
        self._stack.callback(self._give_up)
        try:
            refuse_foreign(self._store)
            return self._lock.claim(owner_text(None), self._lives, above, Process.here())
        except BackupError:
            raise
        except OSError as error:
            raise unwritable(self.shown, error) from error

    def refuse_rival(self, session: SparkSession | None, application: ApplicationInfo | None) -> None:
        """Raise BackupError when another driver owns the folder. Changes nothing; arguments as in `take`."""
        self._lock.refuse_living(self._lives)

    def begin(self, term: int, config: Resolved, record: RunRecord) -> Backlog:
        """The records of this attempt begin.

        Raises:
            ConfigError: the folder cannot be written, and is as it was.
        """
        records = begin_records(self.folder, config, record, self.shown)
        self._began = True
        self._stack.callback(records.close)
        return records

    def publish(self, waiting: bytes) -> None:
        """Nothing: the files lie in their folder already."""

    # ---- inside ----

    def _create_lock(self, path: str, data: bytes) -> None:
        self._held = held.create(self.folder.path / path, data)

    def _lives(self, holder: Holder) -> bool | None:
        """Whether the owner lives. A kernel's lock says it for sure; without such locks /proc does, on the same machine."""
        if not holder.owner:
            return False
        seen = held.held(self.folder.path / "lock")
        if seen is None and holder.process is not None:
            return holder.process.lives()
        return seen

    def _give_up(self) -> None:
        try:
            if self._began:
                self._lock.release()
            else:
                self._lock.withdraw()
                if self._made:
                    self._store.rmdir("")
        except OSError as error:  # no process holds the lock any more, and the next owner finds that
            log.warning("the run folder could not be released: %s", error)
        finally:
            if self._held >= 0:
                os.close(self._held)
                self._held = -1
