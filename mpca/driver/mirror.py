"""Copies a run's records, and the bad records of its data, to HDFS while the run goes on. A thread of its own does it, so that
no cycle waits for storage.

The same thread shows that the owner of the run's folder lives: it beats, and another driver that wants the folder looks for
beats. What cannot be written is tried again at the next beat. That the folder has another owner is final.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from mpca.errors import BackupError
from mpca.storage import PartWriter, Store
from mpca.timeouts import BEAT_S

__all__ = ["BEAT", "Mirror", "beats", "read_beat"]

log = logging.getLogger("mpca.records")
BEAT = "lock.beat"


class Mirror:
    """Starts its thread when it is made. `lost` is set when another driver owns the folder; the runner looks at it.

    Args:
        store: the run's folder.
        guard: raises BackupError when another driver owns the folder.
        every_s: seconds between two beats.
    """

    def __init__(self, store: Store, guard: Callable[[], None], every_s: float = BEAT_S) -> None:
        self._store, self._guard, self._every_s = store, guard, every_s
        self.writer: PartWriter | None = None  # of the records, once there are some
        self.beside: Path | None = None  # a local file that is copied as a whole, and may not exist yet
        self._copied = b""
        self.growing: Path | None = None  # a local folder, which may not exist yet; of its files only the newest grows
        self._whole: set[str] = set()  # files of it that are copied
        self.lost: BackupError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="mpca-mirror", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 10.0) -> None:
        """Let the write that is under way end, for `timeout_s` seconds at most."""
        self._ended.set()
        self._thread.join(timeout_s)

    def _follow(self) -> None:
        failing = False
        while True:
            try:
                self._guard()
                self._store.write(BEAT, str(time.time_ns()).encode())
                if self.writer is not None:
                    self.writer.flush()
                self._copy()
                self.copy_growing(newest=False)
                failing = False
            except BackupError as error:
                self.lost = error
                return
            except OSError as error:
                if not failing and not self._ended.is_set():
                    log.warning("records are not on HDFS yet, and are tried again: %s", error)
                failing = True
            if self._ended.wait(self._every_s):
                return

    def _copy(self) -> None:
        if self.beside is None or not self.beside.exists():
            return
        data = self.beside.read_bytes()
        if data != self._copied:
            self._store.write(self.beside.name, data)
            self._copied = data

    def copy_growing(self, newest: bool) -> None:
        """Copy the files that do not grow any more.

        Args:
            newest: whether the newest one does not, either.

        Raises:
            OSError: the storage failed; the next call goes on.
        """
        if self.growing is None or not self.growing.exists():
            return
        names = sorted(os.listdir(self.growing))
        for name in names if newest else names[:-1]:
            if name not in self._whole:
                self._store.write(f"{self.growing.name}/{name}", (self.growing / name).read_bytes())
                self._whole.add(name)


def beats(store: Store, within_s: float) -> bool:
    """Whether the owner of the folder beats.

    Args:
        store: the run's folder.
        within_s: how long to look, in seconds; a beat that comes sooner ends the look.
    """
    until = time.monotonic() + within_s
    first = read_beat(store)
    while time.monotonic() < until:
        time.sleep(min(0.5, within_s))
        if read_beat(store) != first:
            return True
    return False


def read_beat(store: Store) -> bytes | None:
    """The newest beat; None when there is none yet."""
    try:
        return store.read(BEAT)
    except FileNotFoundError:
        return None
