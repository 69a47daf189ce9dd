"""Rules for a run's files wherever they lie: how its records begin, who owns them, and which files are not written over."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mpca.errors import ConfigError
from mpca.private import opener
from mpca.records import Backlog, LineWriter, RunFolder, RunRecord
from mpca.storage import RunLock, Store, joined

if TYPE_CHECKING:
    from mpca.config.resolved import Resolved
    from mpca.spark.yarn.submitted import ApplicationInfo

__all__ = ["OwnedFolder", "begin_records", "owner_text", "refuse_foreign", "unwritable"]

#: Files that a run writes over in its folder.
_MADE = ("config.toml", "records.jsonl", "bad.jsonl", "summary.json", "model.safetensors", "report.html")


class OwnedFolder:
    """The folder of a run, which this driver owns by its lock."""

    _lock: RunLock

    @property
    def terms(self) -> list[int]:
        """Terms of this run's attempts. This attempt may remove what they made in the folder."""
        return self._lock.terms()

    def check(self) -> None:
        """Check that this driver owns the folder.

        Raises:
            BackupError: another driver has taken it over.
        """
        self._lock.check()


def begin_records(folder: RunFolder, config: Resolved, record: RunRecord, shown: Path | str) -> Backlog:
    """Write the configuration and the first record, or neither.

    Args:
        folder: where they go.
        config: of the run.
        record: the first one of this attempt.
        shown: the folder's name in an error.

    Raises:
        ConfigError: the folder cannot be written.
    """
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
        raise unwritable(shown, error) from error
    return Backlog(writer)


def unwritable(shown: Path | str, error: OSError) -> ConfigError:
    """The error for a run folder that cannot be written."""
    return ConfigError(
        f"run folder cannot be written: --run-dir={shown}: {error.strerror or error}; make room, or name another"
    )


def refuse_foreign(store: Store) -> None:
    """A run writes over the files that runs make. In a folder without a run, such files are somebody else's.

    Raises:
        ConfigError: there are some.
    """
    names = store.names("")
    if any(name == "lock" or name.startswith("lock.term-") for name in names):
        return
    if joined(store).startswith(b'{"kind": "run"') or ("config.toml" in names and b"\n[origin]\n" in store.read("config.toml")):
        return
    found = [name for name in _MADE if name in names]
    if found:
        raise ConfigError(
            f"the run would overwrite files that no run wrote: {store.describe('')}: {', '.join(found)}; "
            "move them away, or name another --run-dir"
        )


def owner_text(application: ApplicationInfo | None) -> str:
    """The name of this driver in the lock of a run folder."""
    process = f"pid {os.getpid()} on {platform.node()}"
    return f"{application.id}, {process}" if application is not None else process
