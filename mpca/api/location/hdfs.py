"""A run in a folder on HDFS, with a working copy on this machine while the run goes on.

Before the run ends, HDFS has its configuration, its backups, and its records in parts (`storage.parts`).
"""

from __future__ import annotations

import logging
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from mpca.api.location.files import OwnedFolder, begin_records, owner_text, refuse_foreign
from mpca.api.stores import open_store
from mpca.driver.mirror import BEAT, Mirror, beats, read_beat
from mpca.environment import environment
from mpca.errors import BackupError, ConfigError, RunFailed
from mpca.records import Backlog, RunFolder, RunRecord
from mpca.records.summary import read_summary
from mpca.storage import Holder, Location, PartWriter, Process, RunLock, Store, joined
from mpca.timeouts import OWNER_DEAD_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mpca.config.resolved import Resolved
    from mpca.spark.yarn.submitted import ApplicationInfo

__all__ = ["HdfsRunLocation"]

log = logging.getLogger("mpca.run")


class HdfsRunLocation(OwnedFolder):
    """A folder on HDFS. The working copy is a temporary folder; `stack` removes it."""

    def __init__(self, location: Location, stack: ExitStack) -> None:
        # In a container the current folder belongs to YARN, which removes it even after a kill.
        base = os.getcwd() if environment("CONTAINER_ID") else None
        self.root = location
        self.folder = RunFolder(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mpca-", dir=base))))
        self._stack = stack
        self._mirror: Mirror | None = None
        self._made = self._began = False
        self._beat: bytes | None = None  # the beat that was there before ours
        self._silent = False  # HDFS did not answer

    @property
    def shown(self) -> Path | str:
        return self.root.text

    @property
    def lost(self) -> BackupError | None:
        """The error once another driver has taken the folder over; None: this driver owns it."""
        return self._mirror.lost if self._mirror is not None else None

    def take(self, session: SparkSession | None, resume: bool, application: ApplicationInfo | None, above: int = 0) -> int:
        """As `LocalRunLocation.take`. A later attempt of the same application goes on even if `resume` is false.

        Raises:
            ConfigError: the folder exists and this is not a resume, or the folder is somebody else's.
            BackupError: another driver owns it, or has owned it since an earlier attempt of this application; or HDFS does not
                answer.
            RunFailed: an earlier attempt of this application ended by the user's own error: this one would too.
        """
        attempt = application.attempt if application is not None else 1
        again = attempt > 1
        try:
            self._store = open_store(self.root, self._stack, session, private=True)
            self._lock = RunLock(self._store)

            def lives(holder: Holder) -> bool:
                return _lives(holder, application, self._store)

            there = self._store.exists("")
            if there and not (resume or again):
                self._lock.refuse_living(lives)
                raise ConfigError(
                    f"run folder exists: --run-dir={self.root.text}; name another, or go on with that run by --resume auto"
                )
            if application is not None and again:
                _refuse_stranger(self._lock.owners(), application)
            refuse_foreign(self._store)
            self._made = not there
            self._stack.callback(self._give_up)
            term = self._lock.claim(owner_text(application), lives, above, Process.here())
            self._beat = read_beat(self._store)
            self._mirror = Mirror(self._store, self._lock.check)
            if again:
                self._refuse_final(attempt)
            earlier = joined(self._store)
            self.folder.records.write_bytes(earlier)
            self._earlier = len(earlier)
            if self._store.exists(self.folder.bad.name):
                self.folder.bad.write_bytes(self._store.read(self.folder.bad.name))
        except OSError as error:
            if isinstance(error, BackupError):
                raise
            raise BackupError(f"run folder cannot be used: {error}") from error
        return term

    def refuse_rival(self, session: SparkSession | None, application: ApplicationInfo | None) -> None:
        """As `LocalRunLocation.refuse_rival`."""
        store = open_store(self.root, self._stack, session, private=True)
        RunLock(store).refuse_living(lambda holder: _lives(holder, application, store))

    def begin(self, term: int, config: Resolved, record: RunRecord) -> Backlog:
        """The records of this attempt begin.

        Raises:
            ConfigError: the working copy cannot be written; the folder is as it was.
            OSError: HDFS does not answer.
        """
        assert self._mirror is not None
        records = begin_records(self.folder, config, record, self.folder.path)
        self._stack.callback(records.close)
        self._began = True
        self._store.delete("summary.json")  # an earlier attempt wrote it, and this attempt is the last one now
        self._writer = self._mirror.writer = PartWriter(self._store, self.folder.records, term, self._earlier)
        self._mirror.beside, self._mirror.growing = self.folder.bad, self.folder.tensorboard
        self._put(self.folder.config)
        return records

    def publish(self, waiting: bytes) -> None:
        """Put all of the working copy on HDFS, and the records that it could not take.

        Raises:
            OSError: HDFS does not answer.
        """
        assert self._mirror is not None
        self._mirror.close()
        if self.lost is not None:
            return
        try:
            self._lock.check()
            for path in (self.folder.config, self.folder.bad, self.folder.model, self.folder.report):
                self._put(path)
            self._mirror.copy_growing(newest=True)
            self._writer.finish(waiting)
            self._put(self.folder.summary)  # last: a reader that finds it finds all other files
            self._store.delete(BEAT)
        except OSError:
            self._silent = True
            raise

    # ---- inside ----

    def _give_up(self) -> None:
        if self._mirror is not None:
            self._mirror.close()
        if self._silent:  # another call would wait for HDFS once more; the next owner finds that nobody beats
            return
        try:
            if self._began:
                self._lock.release()
                return
            if self._mirror is not None and self.lost is None:
                if self._beat is None:
                    self._store.delete(BEAT)
                else:
                    self._store.write(BEAT, self._beat)
            self._lock.withdraw()
            if self._made:
                self._store.rmdir("")
        except OSError as error:  # the next owner finds that nobody beats
            log.warning("the run folder could not be released: %s", error)

    def _put(self, path: Path) -> None:
        if path.exists():
            self._store.write(path.name, path.read_bytes())

    def _refuse_final(self, attempt: int) -> None:
        if not self._store.exists("summary.json"):
            return
        self.folder.summary.write_bytes(self._store.read("summary.json"))
        try:
            summary = read_summary(self.folder.summary)
        except ValueError as error:  # its writer died while it wrote, so this attempt may end otherwise
            log.warning("the summary of the attempt before is damaged: %s", error)
            return
        finally:
            self.folder.summary.unlink()
        if summary.final:
            raise RunFailed(f"{summary.reason} (an earlier attempt ended so, and attempt {attempt} does not repeat it)")
        log.info("attempt=%d goes on: the attempt before ended as %s: %s", attempt, summary.status, summary.reason)


def _refuse_stranger(owners: list[str], application: ApplicationInfo) -> None:
    """When another driver has taken the folder from an attempt, the next attempt does not take it back."""
    ours = [owner.startswith(f"{application.id},") for owner in owners]
    if any(ours) and not ours[-1]:
        raise BackupError(f"another driver has taken this run over: owner={owners[-1]}; attempt {application.attempt} ends")


def _lives(holder: Holder, application: ApplicationInfo | None, store: Store) -> bool:
    """Whether the owner lives, wherever it is. /proc knows this machine, YARN ended earlier attempts, others beat."""
    if holder.process is not None and holder.process.lives() is False:
        return False
    if application is not None and application.attempt > 1 and holder.owner.startswith(f"{application.id},"):
        return False
    log.info("another driver owns the run folder: owner=%s; waiting up to %.0f s for a sign of it", holder.owner, OWNER_DEAD_S)
    return beats(store, OWNER_DEAD_S)
