"""The driver's end of the evaluator: starts the process, sends it states and collects results, and never waits.

A state is copied once, by a thread of its own: a copy takes as long as a small cycle. It is in a memory file of the driver,
which the evaluator opens by ``/proc``. It has no name, so nothing must be removed when a process is killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np

from mpca import pickling
from mpca.errors import JvmError
from mpca.storage.tensors import RawTensor, pieces
from mpca.timeouts import EVALUATOR_END_S
from mpca.wire.codec import FrameBuffer, frame
from mpca.wire.messages import Files

__all__ = ["Died", "Evaluated", "EvaluatorProcess"]

_log = logging.getLogger("mpca.evaluator")


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The answer to one request: numbers, or the reason why there are none."""

    cycle: int
    values: Mapping[str, float]
    seconds: float  # inside the evaluator, reading the state included
    failed: str | None  # a traceback


@dataclass(frozen=True, slots=True)
class Died:
    """The process ended, or could not be started or asked."""

    reason: str
    cycle: int | None  # cycle of the request that is lost with the process


class EvaluatorProcess:
    """One evaluator. For one thread; a context manager.

    The first `submit` starts the process: before it, agents start, which may be on this machine. After a death, which `poll`
    reports once, the next `submit` starts it again. After its first answer the process has low priority.

    Args:
        evaluate: takes a state_dict of CPU tensors, and returns numbers by name; shipped like a train function.
        threads: number of torch's threads.
        python: the interpreter.
        serve: reads files of HDFS for the process; None: the process reads them over WebHDFS.
    """

    def __init__(
        self,
        evaluate: Callable[[Any], dict[str, float]],
        threads: int = 1,
        python: str = sys.executable,
        serve: Callable[[Files], None] | None = None,
    ) -> None:
        self._python, self._serve = python, serve
        self._load = {"do": "load", "payload": pickling.dumps(evaluate), "threads": threads, "served": serve is not None}
        self._open: dict[int, int] = {}  # cycle -> descriptor of its state
        self._copies: list[_Copy] = []  # of states that were not sent yet
        self._process: subprocess.Popen[bytes] | None = None
        self._deaths: list[Died] = []  # not yet reported by `poll`

    @property
    def busy(self) -> bool:
        """Whether a request is unanswered."""
        return bool(self._open)

    @property
    def pid(self) -> int | None:
        """The process's id; None when it does not run."""
        return self._process.pid if self._process is not None else None

    def submit(self, cycle: int, tensors: Callable[[], Mapping[str, RawTensor | np.ndarray]]) -> None:
        """Ask for an evaluation of a state; the answer carries the same cycle. `poll` sends it when it is copied.

        Args:
            cycle: of the state.
            tensors: gives the state; called in another thread, and what it gives must stay as it is until the answer.
        """
        try:
            if self._process is None:
                self._start()
            fd = os.memfd_create(f"mpca-evaluate-{cycle}", os.MFD_CLOEXEC)
            self._open[cycle] = fd
            self._copies.append(_Copy(cycle, os.dup(fd), tensors))
        except OSError as error:
            self._lose(f"it could not be asked: {error}", cycle)

    def poll(self) -> list[Evaluated | Died]:
        """All answers that have come, oldest first; then `Died` if the process has died.

        Raises:
            ValueError: a state cannot be written: `storage.tensors.pieces`.
        """
        self._send_copied()
        done: list[Evaluated | Died] = []
        if self._process is not None:
            self._flush()
            # Look at the process before the pipe, so that its last answer is read. The end of the pipe alone is no proof of
            # death: a process that the user's function has forked holds the pipe too.
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            if not self._take_answers(done) or ended:
                self._end_group()
                self._lose(f"it ended: exit_code={_exit(self._process.returncode)}")
        told, self._deaths = self._deaths, []
        return done + told

    def close(self) -> None:
        """Kill the process; safe to call twice."""
        if self._process is not None:
            self._close_pipes(self._process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(EVALUATOR_END_S)
        self._forget()

    def __enter__(self) -> EvaluatorProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        command = [self._python, "-m", "mpca.agent.evaluator"]
        # a session of its own from the first: Ctrl-C reaches the whole group of this process, and Python is slow to start
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True)
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._write_fd, self._read_fd = process.stdin.fileno(), process.stdout.fileno()
        os.set_blocking(self._write_fd, False)
        os.set_blocking(self._read_fd, False)
        self._buffer = FrameBuffer()
        self._unsent = bytearray()
        self._send(self._load)

    def _take_answers(self, done: list[Evaluated | Died]) -> bool:
        """False when the pipe has ended."""
        try:
            while data := os.read(self._read_fd, 1 << 16):
                for said in map(msgpack.unpackb, self._buffer.feed(data)):
                    if "files" in said:
                        self._open_files(Files(**said["files"]))
                    else:
                        done.append(self._done(said))
        except BlockingIOError:
            return True
        return False

    def _open_files(self, files: Files) -> None:
        assert self._serve is not None  # the process was told so
        try:
            self._serve(files)
        except JvmError as error:  # the process has ended since, which `poll` reports; or it gives up waiting
            _log.warning("the evaluator gets no files of HDFS: %s", error)

    def _done(self, answer: dict[str, Any]) -> Evaluated:
        cycle, result, failed = answer["id"], answer.get("result", {}), answer.get("failed")
        os.close(self._open.pop(cycle))
        if failed is not None:
            _log.warning("an evaluation failed: cycle=%d\n%s", cycle, failed)
        return Evaluated(cycle, result, answer.get("seconds", 0.0), failed)

    def _lose(self, reason: str, cycle: int | None = None) -> None:
        """Remove the process, and let `poll` report its death."""
        self._deaths.append(Died(reason, cycle if cycle is not None else next(iter(self._open), None)))
        self._forget()

    @staticmethod
    def _close_pipes(process: subprocess.Popen[bytes]) -> None:
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _forget(self) -> None:
        if self._process is not None:
            self._end_group()
            self._close_pipes(self._process)
            self._process = None
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()
        self._copies.clear()

    def _send_copied(self) -> None:
        while self._copies and not self._copies[0].is_alive():
            copy = self._copies.pop(0)
            if isinstance(copy.error, OSError):
                self._lose(f"it could not be asked: {copy.error}", copy.cycle)
            elif copy.error is not None:
                raise copy.error
            else:
                self._send({"do": "evaluate", "id": copy.cycle, "path": f"/proc/{os.getpid()}/fd/{self._open[copy.cycle]}"})

    def _end_group(self) -> None:
        """Kill the process and its children. Wait for it last, since until then no other process can have its id."""
        assert self._process is not None
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it does not lead a group yet
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            try:
                self._process.wait(EVALUATOR_END_S)
            except subprocess.TimeoutExpired:  # it is in a system call that does not end, such as a read of a dead NFS server
                _log.warning("the evaluator does not end: pid=%d", self._process.pid)

    def _send(self, request: dict[str, Any]) -> None:
        self._unsent += frame(msgpack.packb(request))
        self._flush()

    def _flush(self) -> None:
        """Write as much as the pipe takes; the next call writes the rest."""
        try:
            while self._unsent:
                del self._unsent[: os.write(self._write_fd, self._unsent)]
        except BlockingIOError:
            pass
        except BrokenPipeError:  # the process died; `poll` reports it
            self._unsent.clear()


class _Copy(threading.Thread):
    """Writes a state into a memory file, by a descriptor of its own: the driver may give the other one up meanwhile."""

    def __init__(self, cycle: int, fd: int, tensors: Callable[[], Mapping[str, RawTensor | np.ndarray]]) -> None:
        super().__init__(name="mpca-evaluator-copy", daemon=True)
        self.cycle = cycle
        self.error: Exception | None = None
        self._fd, self._tensors = fd, tensors
        self.start()

    def run(self) -> None:
        try:
            with open(self._fd, "wb", buffering=0) as file:
                for piece in pieces({name: _raw(one) for name, one in self._tensors().items()}):
                    left = memoryview(piece)
                    while left:  # one call moves at most 2 GiB
                        left = left[file.write(left) :]
        except Exception as error:
            self.error = error


def _raw(one: RawTensor | np.ndarray) -> RawTensor:
    return one if isinstance(one, RawTensor) else RawTensor(str(one.dtype), one.shape, one.tobytes())


def _exit(code: int | None) -> str:
    """Name the signal or the exit code; SIGKILL may mean that the kernel was short of memory."""
    return f"{code} ({signal.Signals(-code).name})" if code is not None and code < 0 else str(code)
