"""Backups beside training: the objective `DumpModel` (section 5.3), written by one thread so that no cycle waits.

`storage.backup` says what a backup holds, the runner says when one is due. When a backup cannot be written, a record says so,
training goes on, and the backup before stays.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from mpca.driver.joint import JointModel
from mpca.errors import BackupError
from mpca.methods import to_dict
from mpca.storage import Backups, BackupState

__all__ = ["BackupWriter"]

log = logging.getLogger("mpca.backup")


class BackupWriter:
    """One backup at a time. The runner's thread calls everything; the writing thread sees copies only.

    Args:
        backups: where they are written.
        run: id of the run.
        term: number of the driver's attempt.
        seed: of the run.
        software: versions of what computes, by name.
    """

    def __init__(self, backups: Backups, run: str, term: int, seed: int, software: dict[str, str]) -> None:
        self._backups, self._run, self._term = backups, run, term
        self._seeds, self._software = {"run": seed}, software
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mpca-backup")
        self._writing: Future[dict[str, Any]] | None = None
        self._done: list[dict[str, Any]] = []

    @property
    def busy(self) -> bool:
        """Whether one is being written."""
        return self._writing is not None and not self._writing.done()

    def submit(self, joint: JointModel, cycle: int, progress: dict[str, Any], data: dict[str, Any]) -> None:
        """Write the joint model as it is now, as of the end of `cycle - 1`. Waits for the backup before this one.

        Args:
            joint: the joint model; its numbers are copied here.
            cycle: the first cycle of a run that goes on from this backup.
            progress: what a later attempt needs besides the model (`Runner.progress`).
            data: where agents are in the data (`Machine.position`).
        """
        self._collect(wait=True)
        state = BackupState(
            layout=joint.layout,
            vector=joint.vector(),
            trajectory=joint.trajectory(),
            bounds=joint.bounds,
            exchanges=joint.versions(),
            run=self._run,
            term=self._term,
            cycle=cycle,
            method=to_dict(joint.method),
            data=data,
            seeds=self._seeds,
            software=self._software,
            progress=progress,
        )
        self._writing = self._thread.submit(self._write, state)

    def poll(self) -> list[dict[str, Any]]:
        """Take the results of the backups that have ended.

        Returns:
            Fields of `records.BackupRecord`, one dictionary for each.
        """
        self._collect(wait=False)
        done, self._done = self._done, []
        return done

    def close(self, timeout_s: float) -> None:
        """Let the backup that is being written end, for `timeout_s` seconds at most."""
        if self._writing is not None:
            try:
                self._done.append(self._writing.result(timeout_s))
            except TimeoutError:
                log.warning("a backup was still being written after %.0f s and is abandoned", timeout_s)
            self._writing = None
        self._thread.shutdown(wait=False)

    def _collect(self, wait: bool) -> None:
        if self._writing is not None and (wait or self._writing.done()):
            self._done.append(self._writing.result())
            self._writing = None

    def _write(self, state: BackupState) -> dict[str, Any]:
        began = time.monotonic()
        try:
            info = self._backups.write(state)
        except BackupError as error:
            log.warning("%s", error)
            return self._fields("", state.cycle, 0, time.monotonic() - began, False, str(error))
        return self._fields(info.path, state.cycle, info.size_bytes, time.monotonic() - began, True, None)

    @staticmethod
    def _fields(path: str, cycle: int, size: int, seconds: float, ok: bool, reason: str | None) -> dict[str, Any]:
        return {"path": path, "cycle": cycle, "bytes": size, "seconds": seconds, "ok": ok, "reason": reason}
