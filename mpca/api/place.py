"""Where a run lives: a folder of this machine, or one on HDFS, of which a working copy lies here while the run goes on.

Both have the same files under the same names, and one owner at a time. What of a run on HDFS is there before it ends:
its configuration, its backups, and its records in parts (`storage.parts`).
"""

from __future__ import annotations

import logging
import os
import platform
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mpca.api.stores import open_store
from mpca.config import environment
from mpca.driver.mirror import BEAT, EVERY_S, Mirror, beats, read_beat
from mpca.errors import BackupError, ConfigError, RunFailed
from mpca.private import opener
from mpca.records import Backlog, LineWriter, RunFolder, RunRecord
from mpca.records.summary import read_summary
from mpca.storage import Holder, LocalStore, Location, PartWriter, Process, RunLock, Store, held, joined
from mpca.timeouts import OWNER_DEAD_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mpca.config import Resolved
    from mpca.spark.yarn.submitted import Origin

__all__ = ["HdfsPlace", "LocalPlace", "Place", "choose_place"]

log = logging.getLogger("mpca.run")
#: What a run writes over in its folder.
_MADE = ("config.toml", "records.jsonl", "bad.jsonl", "summary.json", "model.safetensors", "report.html")


class LocalPlace:
    """A folder of this machine."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.folder = RunFolder(path)
        self._stack = stack
        self.location = Location.parse(path)
        self._store = LocalStore(path, private=True)
        self._lock = RunLock(self._store, create=self._create_lock)
        self._held = -1  # the lock's file, which the kernel holds for us
        self._made = self._began = False
        self._lost: BackupError | None = None
        self._next_look = 0.0

    @property
    def shown(self) -> Path | str:
        return self.folder.path

    @property
    def lost(self) -> BackupError | None:
        """Another driver has taken over: only when somebody removed our lock."""
        now = time.monotonic()
        if self._lost is None and self._began and now >= self._next_look:
            self._next_look = now + EVERY_S
            with suppress(OSError):  # a folder that cannot be read belongs to nobody else yet
                self._lost = self._lock.rival()
        return self._lost

    def take(self, session: SparkSession | None, resume: bool, origin: Origin | None, above: int = 0) -> int:
        """Make the folder, or go on in it, as its only owner; the epoch of this attempt.

        Until `begin` nothing but the lock is written, and if that never comes all is left as it was.

        Args:
            above: the highest epoch that a backup of this run has.

        Raises:
            ConfigError: it exists, and this is not a resume; or it is somebody else's, or cannot be written.
            BackupError: another driver owns it.
        """
        self._made = self.folder.create(resume)
        self._stack.callback(self._give_up)
        try:
            _refuse_foreign(self._store)
            return self._lock.claim(_owner(None), self._lives, above, Process.here())
        except BackupError:
            raise
        except OSError as error:
            raise _unwritable(self.shown, error) from error

    def begin(self, epoch: int, config: Resolved, record: RunRecord) -> Backlog:
        """The records of this attempt begin.

        Raises:
            ConfigError: the folder cannot be written, and is as it was.
        """
        records = _begin(self.folder, config, record, self.shown)
        self._began = True
        self._stack.callback(records.close)
        return records

    @property
    def epochs(self) -> list[int]:
        """Of this run's attempts: what they made in the folder may be removed by this one."""
        return self._lock.epochs()

    def check(self) -> None:
        """Raises BackupError when another driver has taken over."""
        self._lock.check()

    def publish(self, waiting: bytes) -> None:
        """The folder is complete, or will not be."""

    # ---- inside ----

    def _create_lock(self, path: str, data: bytes) -> None:
        self._held = held.create(self.folder.path / path, data)

    def _lives(self, holder: Holder) -> bool | None:
        """A lock of the kernel says it for sure; a file system without them leaves what /proc says, on the same machine."""
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
        except OSError as error:  # nobody holds it any more, and the next owner finds that
            log.warning("run folder not given up: %s", error)
        finally:
            if self._held >= 0:
                os.close(self._held)
                self._held = -1


class HdfsPlace:
    """A folder on HDFS. Its working copy is a temporary folder, which `stack` removes."""

    def __init__(self, location: Location, stack: ExitStack) -> None:
        # In a container the working folder is YARN's, which removes it whoever is killed.
        base = os.getcwd() if environment("CONTAINER_ID") else None
        self.location = location
        self.folder = RunFolder(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mpca-", dir=base))))
        self._stack = stack
        self._mirror: Mirror | None = None
        self._made = self._began = False
        self._beat: bytes | None = None  # that was there before
        self._silent = False  # HDFS did not answer

    @property
    def shown(self) -> Path | str:
        return self.location.text

    @property
    def lost(self) -> BackupError | None:
        """Another driver has taken over."""
        return self._mirror.lost if self._mirror is not None else None

    def take(self, session: SparkSession | None, resume: bool, origin: Origin | None, above: int = 0) -> int:
        """As of a local one; a later attempt of the same application goes on without being asked to.

        Raises:
            ConfigError: it exists, and this is not a resume; or it is somebody else's.
            BackupError: another driver owns it, or has since an earlier attempt of this application; or HDFS does not answer.
            RunFailed: an earlier attempt of this application ended by the user's own error: this one would too.
        """
        attempt = origin.attempt if origin is not None else 1
        again = attempt > 1
        try:
            self._store = open_store(self.location, self._stack, session, private=True)
            self._lock = RunLock(self._store)

            def lives(holder: Holder) -> bool:
                return _lives(holder, origin, self._store)

            there = self._store.exists("")
            if there and not (resume or again):
                self._lock.refuse_living(lives)
                raise ConfigError(
                    f"run folder exists: --run-dir={self.location.text}; name another, or go on with that run by --resume auto"
                )
            if origin is not None and again:
                _refuse_stranger(self._lock.owners(), origin)
            _refuse_foreign(self._store)
            self._made = not there
            self._stack.callback(self._give_up)
            epoch = self._lock.claim(_owner(origin), lives, above, Process.here())
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
        return epoch

    def begin(self, epoch: int, config: Resolved, record: RunRecord) -> Backlog:
        """The records of this attempt begin.

        Raises:
            ConfigError: the working copy cannot be written; the folder is as it was.
            OSError: HDFS does not answer.
        """
        assert self._mirror is not None
        records = _begin(self.folder, config, record, self.folder.path)
        self._stack.callback(records.close)
        self._began = True
        self._store.delete("summary.json")  # of an attempt that is not the last one any more
        self._writer = self._mirror.writer = PartWriter(self._store, self.folder.records, epoch, self._earlier)
        self._mirror.beside = self.folder.bad
        self._put(self.folder.config)
        return records

    @property
    def epochs(self) -> list[int]:
        """Of this run's attempts: what they made in the folder may be removed by this one."""
        return self._lock.epochs()

    def check(self) -> None:
        """Raises BackupError when another driver has taken over."""
        self._lock.check()

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
            self._writer.finish(waiting)
            self._put(self.folder.summary)  # last: who finds it finds the rest
            self._store.delete(BEAT)
        except OSError:
            self._silent = True
            raise

    # ---- inside ----

    def _give_up(self) -> None:
        if self._mirror is not None:
            self._mirror.close()
        if self._silent:  # it would have to be waited for once more; the next owner finds that nobody beats
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
            log.warning("run folder not given up: %s", error)

    def _put(self, path: Path) -> None:
        if path.exists():
            self._store.write(path.name, path.read_bytes())

    def _refuse_final(self, attempt: int) -> None:
        if not self._store.exists("summary.json"):
            return
        self.folder.summary.write_bytes(self._store.read("summary.json"))
        try:
            summary = read_summary(self.folder.summary)
        except ValueError as error:  # its writer died over it: nothing says that this attempt would end as that one did
            log.warning("the summary of the attempt before is damaged: %s", error)
            return
        finally:
            self.folder.summary.unlink()
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


def _begin(folder: RunFolder, config: Resolved, record: RunRecord, shown: Path | str) -> Backlog:
    """The configuration and the first record, or neither."""
    fresh = not folder.records.exists()
    temporary = folder.config.with_name(".config.toml.tmp")
    writer = None
    try:
        with open(temporary, "wb", opener=opener):
            pass
        config.write(temporary)
        writer = LineWriter(folder.records)
        writer.write(record)
        temporary.replace(folder.config)
    except OSError as error:
        if writer is not None:
            writer.close()
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
            if writer is not None and fresh:
                folder.records.unlink()
        raise _unwritable(shown, error) from error
    return Backlog(writer)


def _unwritable(shown: Path | str, error: OSError) -> ConfigError:
    return ConfigError(
        f"run folder cannot be written: --run-dir={shown}: {error.strerror or error}; make room, or name another"
    )


def _refuse_foreign(store: Store) -> None:
    """A run writes over the files that runs make. Where none has been at work, such files are somebody else's."""
    names = store.names("")
    if any(name == "lock" or name.startswith("lock.epoch-") for name in names):
        return
    if joined(store).startswith(b'{"kind": "run"') or ("config.toml" in names and b"\n[origin]\n" in store.read("config.toml")):
        return
    found = [name for name in _MADE if name in names]
    if found:
        raise ConfigError(
            f"the folder has files that no run wrote and this one would write over: {store.describe('')}: {', '.join(found)}; "
            "move them away, or name another --run-dir"
        )


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


def _lives(holder: Holder, origin: Origin | None, store: Store) -> bool:
    """Where the owner may be anywhere: /proc tells of this machine, YARN has ended attempts before this one, others beat."""
    if holder.process is not None and holder.process.lives() is False:
        return False
    if origin is not None and origin.attempt > 1 and holder.owner.startswith(f"{origin.application},"):
        return False
    log.info("is the owner of the run folder alive? owner=%s, looking for up to %.0f s", holder.owner, OWNER_DEAD_S)
    return beats(store, OWNER_DEAD_S)
