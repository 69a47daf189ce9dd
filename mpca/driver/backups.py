"""Backups beside training: the objective `DumpModel` (section 5.3), written by one thread so that no cycle waits.

`storage.backup` says what a backup holds, the runner says when one is due. When a backup cannot be written, a record says so,
training goes on, and the backup before stays.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future, wait
from dataclasses import replace
from queue import SimpleQueue
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
        self._states: SimpleQueue[tuple[Future[dict[str, Any]], BackupState] | None] = SimpleQueue()
        self._writing: list[Future[dict[str, Any]]] = []  # in their order; those that have ended stay until `poll`
        # Not an executor of `concurrent.futures`: the process would wait for its thread at the end, while storage hangs.
        self._thread = threading.Thread(target=self._work, name="mpca-backup", daemon=True)

    @property
    def busy(self) -> bool:
        """Whether one is being written."""
        return any(not one.done() for one in self._writing)

    def state(self, joint: JointModel, cycle: int, progress: dict[str, Any], data: dict[str, Any]) -> BackupState:
        """The joint model as it is now, as of the end of `cycle - 1`.

        Args:
            joint: the joint model; its numbers are copied here.
            cycle: the first cycle of a run that goes on from this backup.
            progress: what a later attempt needs besides the model (`Runner.progress`).
            data: where agents are in the data (`Machine.position`).
        """
        return BackupState(
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

    def expect(self, state: BackupState) -> None:
        """Executors are about to write agents' files for this one."""
        self._backups.expect(state.term, state.cycle)

    def submit(self, state: BackupState) -> None:
        """Write this, after the backup before it."""
        if self._thread.ident is None:
            self._thread.start()
        future: Future[dict[str, Any]] = Future()
        self._writing.append(future)
        self._states.put((future, state))

    def poll(self) -> list[dict[str, Any]]:
        """Take the results of the backups that have ended.

        Returns:
            Fields of `records.BackupRecord`, one dictionary for each.
        """
        ended = [one for one in self._writing if one.done()]
        self._writing = self._writing[len(ended) :]  # they end in their order
        return [one.result() for one in ended]

    def close(self, timeout_s: float) -> None:
        """Let the backups that are being written end, for `timeout_s` seconds at most in all."""
        _, left = wait(self._writing, timeout_s)
        if left:
            log.warning("a backup was still being written and is abandoned")
            self._writing = [one for one in self._writing if one not in left]
        for one in left:
            one.cancel()  # it has not begun
        self._states.put(None)

    def _work(self) -> None:
        while (item := self._states.get()) is not None:
            future, state = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._write(state))
                except BaseException as error:  # `poll` raises it where the run is
                    future.set_exception(error)
            del item, future, state  # two models, which would stay until the next one

    def _write(self, state: BackupState) -> dict[str, Any]:
        began = time.monotonic()
        try:
            info = self._backups.write(state)
        except BackupError as error:
            log.warning("%s", error)
            if state.agents:  # executors may have written them where this process does not look
                log.warning("the backup of cycle %d is written without the agents' own states", state.cycle)
                return self._write(replace(state, agents={}))
            return self._fields("", state.cycle, 0, time.monotonic() - began, False, str(error))
        return self._fields(info.path, state.cycle, info.size_bytes, time.monotonic() - began, True, None)

    @staticmethod
    def _fields(path: str, cycle: int, size: int, seconds: float, ok: bool, reason: str | None) -> dict[str, Any]:
        return {"path": path, "cycle": cycle, "bytes": size, "seconds": seconds, "ok": ok, "reason": reason}
