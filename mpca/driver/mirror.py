"""A run's records on their way to HDFS while it goes on, by a thread of their own, so that no cycle waits for storage.

The same thread shows that the owner of the run's folder lives: it beats, and another driver that wants the folder looks.
What cannot be written is tried again at the next beat; that the folder has another owner is final.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from mpca.errors import BackupError
from mpca.storage import PartWriter, Store

__all__ = ["BEAT", "EVERY_S", "Mirror", "beats"]

log = logging.getLogger("mpca.records")
BEAT = "lock.beat"
#: Records are on HDFS at least every five seconds, the time of writing included.
EVERY_S = 3.0


class Mirror:
    """Started by its making. `lost` is set when another driver owns the folder; the runner looks at it."""

    def __init__(self, store: Store, writer: PartWriter, guard: Callable[[], None], every_s: float = EVERY_S) -> None:
        self._store, self._writer, self._guard, self._every_s = store, writer, guard, every_s
        self.lost: BackupError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="mpca-mirror", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 10.0) -> None:
        """Let the write that is under way end, but not for ever."""
        self._ended.set()
        self._thread.join(timeout_s)

    def _follow(self) -> None:
        failing = False
        while True:
            try:
                self._guard()
                self._store.write(BEAT, str(time.time_ns()).encode())
                self._writer.flush()
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


def beats(store: Store, within_s: float) -> bool:
    """Whether the owner of the folder beats; looks until it does, or for `within_s` seconds."""
    until = time.monotonic() + within_s
    first = _beat(store)
    while time.monotonic() < until:
        time.sleep(min(0.5, within_s))
        if _beat(store) != first:
            return True
    return False


def _beat(store: Store) -> bytes:
    try:
        return store.read(BEAT)
    except FileNotFoundError:
        return b""
