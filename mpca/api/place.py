"""Where a run lives: a folder of this machine, or one on HDFS, of which a working copy lies here while the run goes on.

Both have the same files under the same names, and one owner at a time. What of a run on HDFS is there before it ends:
its configuration, its backups, and its records in parts (`storage.parts`).
"""

from __future__ import annotations

import logging
import os
import platform
import re
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from mpca.api.stores import open_store
from mpca.config import environment
from mpca.driver.mirror import BEAT, Mirror, beats
from mpca.errors import BackupError, ConfigError, RunFailed
from mpca.records import RunFolder
from mpca.records.summary import read_summary
from mpca.storage import LocalStore, Location, PartWriter, RunLock, Store, joined

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mpca.spark.submitted import Origin

__all__ = ["HdfsPlace", "LocalPlace", "Place", "choose_place"]

log = logging.getLogger("mpca.run")
#: An owner on another machine is watched for so long; it beats every three seconds.
_WATCH_S = 15.0
_PROCESS = re.compile(r"pid (\d+) on (\S+)$")


class LocalPlace:
    """A folder of this machine."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.folder = RunFolder(path)
        self._stack = stack
        self.location = Location.parse(path)
        self.lost: BackupError | None = None

    @property
    def shown(self) -> Path | str:
        return self.folder.path

    def take(self, session: SparkSession | None, resume: bool, origin: Origin | None) -> int:
        """Make the folder, or go on in it, as its only owner; the epoch of this attempt.

        Raises:
            ConfigError: it exists, and this is not a resume.
            BackupError: another driver owns it.
        """
        self.folder.create(resume)
        self._lock = RunLock(LocalStore(self.folder.path))
        epoch = self._lock.claim(_owner(None), _process_lives)
        self._stack.callback(self._lock.release)
        return epoch

    def began(self, epoch: int) -> None:
        """The records of this attempt begin."""

    def check(self) -> None:
        """Raises BackupError when another driver has taken over."""
        self._lock.check()

    def publish(self) -> None:
        """The folder is complete."""

    def remove(self) -> None:
        """There was no run."""
        shutil.rmtree(self.folder.path)


class HdfsPlace:
    """A folder on HDFS. Its working copy is a temporary folder, which `stack` removes."""

    def __init__(self, location: Location, stack: ExitStack) -> None:
        # In a container the working folder is YARN's, which removes it whoever is killed.
        base = os.getcwd() if environment("CONTAINER_ID") else None
        self.location = location
        self.folder = RunFolder(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mpca-", dir=base))))
        self._stack = stack
        self._mirror: Mirror | None = None
        self._silent = False  # HDFS did not answer

    @property
    def shown(self) -> Path | str:
        return self.location.text

    @property
    def lost(self) -> BackupError | None:
        """Another driver has taken over."""
        return self._mirror.lost if self._mirror is not None else None

    def take(self, session: SparkSession | None, resume: bool, origin: Origin | None) -> int:
        """As of a local one; a later attempt of the same application goes on without being asked to.

        Raises:
            ConfigError: it exists, and this is not a resume.
            BackupError: another driver owns it, or has since an earlier attempt of this application; or HDFS does not answer.
            RunFailed: an earlier attempt of this application ended by the user's own error: this one would too.
        """
        attempt = origin.attempt if origin is not None else 1
        again = attempt > 1
        try:
            self._store = open_store(self.location, self._stack, session)
            self._lock = RunLock(self._store)
            if self._store.exists("") and not (resume or again) and not self._store.exists("lock"):
                raise ConfigError(
                    f"run folder exists: --run-dir={self.location.text}; name another, or go on with that run by --resume auto"
                )
            if origin is not None and again:
                _refuse_stranger(self._lock.owners(), origin)
            epoch = self._lock.claim(_owner(origin), lambda owner: _lives(owner, origin, self._store))
            self._stack.callback(self._release)
            if again:
                self._refuse_final(attempt)
            self._store.delete("summary.json")  # of an attempt that is not the last one any more
            earlier = joined(self._store)
            self.folder.records.write_bytes(earlier)
            self._earlier = len(earlier)
        except OSError as error:
            if isinstance(error, BackupError):
                raise
            raise BackupError(f"run folder cannot be used: {error}") from error
        return epoch

    def began(self, epoch: int) -> None:
        """The records of this attempt begin."""
        self._writer = PartWriter(self._store, self.folder.records, epoch, self._earlier)
        self._mirror = Mirror(self._store, self._writer, self._lock.check)
        self._stack.callback(self._mirror.close)
        self._put(self.folder.config)

    def check(self) -> None:
        """Raises BackupError when another driver has taken over."""
        self._lock.check()

    def _release(self) -> None:
        if self._silent:  # it would have to be waited for once more; the next owner finds that nobody beats
            return
        try:
            self._lock.release()
        except OSError as error:  # the next owner finds that nobody beats
            log.warning("run folder not given up: %s", error)

    def publish(self) -> None:
        """The working copy is complete: put all of it on HDFS. If that cannot be, it is kept, and said where."""
        assert self._mirror is not None
        self._mirror.close()
        if self.lost is not None:
            return
        try:
            self._lock.check()
            for path in (self.folder.config, self.folder.model, self.folder.report):
                self._put(path)
            self._writer.finish()
            self._put(self.folder.summary)  # last: who finds it finds the rest
            self._store.delete(BEAT)
        except OSError as error:
            self._silent = True
            kept = Path(tempfile.mkdtemp(prefix="mpca-kept-"))
            shutil.copytree(self.folder.path, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns("spark"))
            log.error("run folder is not complete on HDFS: %s; all of it is in %s", error, kept)

    def remove(self) -> None:
        """There was no run."""
        assert self._mirror is not None
        self._mirror.close()
        self._store.delete("")

    # ---- inside ----

    def _put(self, path: Path) -> None:
        if path.exists():
            self._store.write(path.name, path.read_bytes())

    def _refuse_final(self, attempt: int) -> None:
        if not self._store.exists("summary.json"):
            return
        self.folder.summary.write_bytes(self._store.read("summary.json"))
        summary = read_summary(self.folder.summary)
        if summary.final:
            raise RunFailed(f"{summary.reason} (an earlier attempt ended so, and attempt {attempt} does not repeat it)")
        log.info("attempt=%d goes on: the one before ended as %s: %s", attempt, summary.status, summary.reason)


Place = LocalPlace | HdfsPlace


def choose_place(chosen: Path | str, name: str, wall: float, stack: ExitStack) -> Place:
    """The place of a run that is to lie at `chosen`; with nothing chosen, ``runs/<name>-<time>``.

    Raises:
        ConfigError: no such kind of place.
    """
    if not chosen:
        return LocalPlace(RunFolder.named(name, wall).path, stack)
    location = Location.parse(chosen)
    if not location.is_local:
        return HdfsPlace(location, stack)
    return LocalPlace(Path(location.path if "://" in str(chosen) else chosen), stack)


def _owner(origin: Origin | None) -> str:
    process = f"pid {os.getpid()} on {platform.node()}"
    return f"{origin.application}, {process}" if origin is not None else process


def _refuse_stranger(owners: list[str], origin: Origin) -> None:
    """An attempt that another driver has taken the folder from does not come back by the next one."""
    ours = [owner.startswith(f"{origin.application},") for owner in owners]
    if any(ours) and not ours[-1]:
        raise BackupError(
            f"another driver has taken this run over: owner={owners[-1]}; attempt {origin.attempt} leaves it alone"
        )


def _process_lives(owner: str) -> bool:
    """Whether the driver that a lock names still runs; on another host it is believed to."""
    process = _PROCESS.search(owner)
    if process is None or process[2] != platform.node():
        return bool(owner)
    return os.path.exists(f"/proc/{process[1]}")


def _lives(owner: str, origin: Origin | None, store: Store) -> bool:
    """The same where the owner may be anywhere: YARN has ended the attempts before this one, any other owner beats."""
    if not _process_lives(owner):
        return False
    if origin is not None and origin.attempt > 1 and owner.startswith(f"{origin.application},"):
        return False
    log.info("is the owner of the run folder alive? owner=%s, looking for up to %.0f s", owner, _WATCH_S)
    return beats(store, _WATCH_S)
