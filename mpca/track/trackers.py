"""The driver's end of trackers: a sink of records that tells each tracker what they say, and never waits for one.

Each tracker has a process (`main`), and a thread here that talks to it, one question at a time. Numbers wait in a queue; beyond
`MOST_WAITING` the oldest are dropped. What a tracker has not taken is said in one line at the end.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

from mpca.checks import masked
from mpca.environment import child_environment, environment
from mpca.records import Record, Sink, TrackerRecord
from mpca.records.lines import record_of
from mpca.timeouts import CHILD_END_S, TRACKER_SILENT_S, TRACKERS_END_S
from mpca.track.port import Begin
from mpca.track.scalars import Scalar, Scalars

__all__ = ["Trackers"]

log = logging.getLogger("mpca.track")

#: Numbers of one tracker: with 16 agents that log five each, a server may be away for twenty minutes without a loss. 30 MB.
MOST_WAITING = 100_000
_AT_ONCE = 1000  # numbers of one question: MLflow's limit
_EVERY_S = 1.0  # between two questions
_SAID_EVERY_S = 600.0  # between two lines that say that it is away: one that fails now and then would fill a screen
#: MLflow's client would try for minutes, we try again ourselves; and nobody else is told of the run. What the user sets counts.
_VARIABLES = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_ERROR_REPORTING": "false",
}


class Trackers:
    """Of one attempt of a run. A `Sink` before the run's own: what is written there is told, too.

    Args:
        sink: of the records.
        begins: how the run begins at each tracker, by the tracker's name.
        written: file of the records so far, those of earlier attempts too; None: there are none.
        program: starts a tracker's process, with its name behind.
    """

    def __init__(
        self,
        sink: Sink,
        begins: Mapping[str, Begin],
        written: Path | None = None,
        program: Sequence[str] = (sys.executable, "-m", "mpca.track.main"),
    ) -> None:
        self._sink, self._scalars = sink, Scalars()
        runs = self._replayed(written) if begins and written is not None else {}
        self._links = [_Link(name, replace(one, run=runs.get(name, "")), [*program, name]) for name, one in begins.items()]
        self._unsaid = list(self._links)  # whose run has no record yet
        self._t = 0.0  # of the newest record

    def write(self, record: Record) -> None:
        """Write a record, and tell of it."""
        self._sink.write(record)
        if not self._links:
            return
        self._t = record.t
        found = self._scalars.of(record)
        for one in self._links:
            one.tell(found)
        self._say_begun()

    def end(
        self,
        status: str,
        reason: str,
        files: Sequence[Path],
        patience_s: float,
        hurried: Callable[[], bool] = lambda: False,
    ) -> None:
        """The run has ended. Waits for trackers that answer.

        Args:
            status, reason: of the summary.
            files: of the run; those that exist go to trackers that keep files.
            patience_s: how long to wait for a tracker that answers.
            hurried: whether somebody wants the program to end by now; then all have no more time than one that is away.
        """
        began = time.monotonic()
        rest = self._scalars.rest()
        for one in self._links:
            one.tell(rest)
            one.end({"status": status, "reason": reason, "files": [str(path) for path in files if path.exists()]})
        for one in self._links:
            one.wait(began, patience_s, hurried)
        self._say_begun()  # of one that took longer than the run, so that a later attempt goes on there too

    def close(self) -> None:
        """End what `end` has not ended, and close the run's own sink."""
        for one in self._links:
            one.kill()
        self._sink.close()

    def _say_begun(self) -> None:
        for one in [one for one in self._unsaid if one.began is not None]:
            self._unsaid.remove(one)
            self._sink.write(TrackerRecord(self._t, one.name, **one.began))  # type: ignore[arg-type]  # it is not None

    def _replayed(self, written: Path) -> dict[str, str]:
        """What the run is called at each tracker. Numbers go on from where the earlier attempts ended.

        One record is held at a time: those of a week are 2 GB.
        """
        runs = {}
        try:
            with open(written, "rb") as lines:
                for number, line in enumerate(lines, start=1):
                    one = record_of(line, written, number)
                    self._scalars.of(one)
                    if isinstance(one, TrackerRecord):
                        runs[one.tracker] = one.run
        except (OSError, ValueError) as error:
            log.warning("trackers begin anew: %s", error)
            return {}
        return runs


class _Gone(Exception):
    """The tracker's process has ended."""


class _Link:
    """One tracker's process, its thread, and what waits for it."""

    def __init__(self, name: str, begin: Begin, command: Sequence[str]) -> None:
        self.name = name
        self.began: dict[str, str] | None = None  # fields of the record
        self._begin, self._command = begin, command
        self._waiting: deque[Scalar] = deque()
        self._changed = threading.Condition()
        self._end: dict[str, Any] | None = None
        self._told = self._lost = 0  # numbers
        self._away = ""  # why; empty: it is not
        self._warned = self._done = self._killed = False
        self._quiet_until = 0.0
        self._asked = ("begin", time.monotonic())
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name=f"mpca-track-{name}", daemon=True)
        self._thread.start()

    # ---- of the run's thread ---------------------------------------------------------------------------------------------

    def tell(self, scalars: Sequence[Scalar]) -> None:
        with self._changed:
            self._told += len(scalars)
            self._waiting.extend(scalars)
            while len(self._waiting) > MOST_WAITING:
                self._waiting.popleft()
                self._lost += 1
            self._changed.notify()

    def end(self, request: dict[str, Any]) -> None:
        with self._changed:
            self._end = request
            self._changed.notify()

    def wait(self, began: float, patience_s: float, hurried: Callable[[], bool]) -> None:
        """Wait for the thread, as long as that makes sense; then kill the process, and say what it did not take.

        Args:
            began: when the waiting for all trackers began.
            patience_s: for one that answers, all in all.
            hurried: as in `Trackers.end`.
        """
        while self._thread.is_alive():
            now = time.monotonic()
            doing, since = self._asked
            silent = doing != "end" and now - since > TRACKER_SILENT_S
            if now - began > (min(TRACKERS_END_S, patience_s) if self._away or silent or hurried() else patience_s):
                break
            self._thread.join(0.05)
        self.kill()
        if not self._done:
            lost = self._lost + len(self._waiting)
            log.warning(
                "tracker %s did not take %d of %d numbers, nor the end of the run: %s",
                self.name, lost, self._told, self._away or f"no answer to {self._asked[0]!r}",
            )  # fmt: skip
        elif self._lost:
            log.warning("tracker %s did not take %d of %d numbers: it was away", self.name, self._lost, self._told)

    def kill(self) -> None:
        """End the process and its thread; safe to call twice."""
        with self._changed:
            self._killed = True
            self._changed.notify()
        process = self._process  # None: its thread, which starts it, ends it too
        if process is not None:
            _end_group(process)
        self._thread.join(CHILD_END_S)

    # ---- of its own thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with ExitStack() as stack:
            try:
                said = stack.enter_context(tempfile.TemporaryFile())
                process = self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, env=_environment()
                )
            except OSError as error:
                self._say_away(f"it could not be started: {error}")
                return
            if self._killed:
                _end_group(process)
            with process:
                try:
                    self._talk(process)
                    self._done = True
                except (_Gone, OSError):
                    _end_group(process)
                    if not self._killed:
                        self._quiet_until = 0.0  # it does not come back
                        self._say_away(f"its process ended: exit_code={process.wait()}{_last_words(said)}")
                finally:
                    with suppress(OSError):  # what could not be written to a process that is gone
                        process.stdin.close()  # type: ignore[union-attr]  # it is a pipe

    def _talk(self, process: subprocess.Popen[bytes]) -> None:
        self.began = self._ask(process, "begin", asdict(self._begin))
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._end is not None or self._killed)
                if self._killed:
                    raise _Gone
                some = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
                last = not some
                self._lost += len(some)  # until it has them
            if last:
                break
            self._ask(process, "log", {"scalars": [astuple(one) for one in some]})
            with self._changed:
                self._lost -= len(some)
                if len(self._waiting) < _AT_ONCE:  # else a run of many agents makes more than could ever be told
                    self._changed.wait_for(lambda: self._end is not None or self._killed, _EVERY_S)
        assert self._end is not None
        self._ask(process, "end", self._end)

    def _ask(self, process: subprocess.Popen[bytes], do: str, given: Mapping[str, Any]) -> dict[str, str]:
        self._asked = (do, time.monotonic())
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write((json.dumps({"do": do, **given}) + "\n").encode())
        process.stdin.flush()
        for line in process.stdout:
            answer: dict[str, Any] = json.loads(line)
            if "done" in answer:
                self._away, self._warned = "", False
                return dict(answer["done"])
            self._say_away(answer["away"])
        raise _Gone

    def _say_away(self, why: str) -> None:
        self._away = why
        now = time.monotonic()
        if not self._warned and now >= self._quiet_until:
            self._warned, self._quiet_until = True, now + _SAID_EVERY_S
            log.warning("tracker %s is away, and the run goes on: %s", self.name, why)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its children, unless it was waited for: since then another process can have its id."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):  # it does not lead a group yet
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()


def _environment() -> dict[str, str]:
    return child_environment(**{name: environment(name, value) for name, value in _VARIABLES.items()})


def _last_words(said: Any) -> str:
    said.seek(0)
    lines = said.read()[-10_000:].decode(errors="replace").strip().splitlines()
    return f", last output: {masked(lines[-1])}" if lines else ""
