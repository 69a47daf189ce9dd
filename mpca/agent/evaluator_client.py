"""The driver's end of the evaluator: starts the process, hands it states and collects results without ever waiting.

A state lies in a memory file of the driver, which the evaluator opens by ``/proc``: it has no name to remove, whoever is
killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle
import msgpack
import numpy as np

from mpca.storage.tensors import RawTensor, dump
from mpca.wire.codec import FrameBuffer, frame

__all__ = ["Evaluated", "EvaluatorProcess"]

_log = logging.getLogger("mpca.evaluator")

_CLOSE_S = 2.0


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What became of one request: numbers, or the reason why there are none."""

    cycle: int
    error: float | None
    loss: float | None
    seconds: float  # inside the evaluator, reading the state included
    failed: str | None  # a traceback, or how the process ended


class EvaluatorProcess:
    """One evaluator. For one thread; a context manager.

    `evaluate` takes a state_dict of CPU tensors and returns ``{"error": ..., "loss": ...}``; it is shipped like a train
    function and, once it has answered, runs at a lower priority. An evaluator that died is started again by the next `submit`.
    """

    def __init__(self, evaluate: Callable[[Any], dict[str, float]], threads: int = 1, python: str = sys.executable) -> None:
        self._python = python
        self._load = {"do": "load", "payload": cloudpickle.dumps(evaluate), "threads": threads}
        self._open: dict[int, int] = {}  # cycle -> descriptor of its state
        self._start()

    @property
    def busy(self) -> bool:
        """Whether a request is unanswered."""
        return bool(self._open)

    @property
    def pid(self) -> int:
        return self._process.pid

    def submit(self, cycle: int, tensors: Mapping[str, RawTensor | np.ndarray]) -> None:
        """Ask for an evaluation of this state; the answer carries the same cycle."""
        if self._process.poll() is not None and not self._open:
            _log.warning("the evaluator is started again: exit_code=%d", self._process.returncode)
            self.close()
            self._start()
        data = dump({name: _raw(one) for name, one in tensors.items()})
        fd = os.memfd_create(f"mpca-evaluate-{cycle}", os.MFD_CLOEXEC)
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        self._open[cycle] = fd
        self._send({"do": "evaluate", "id": cycle, "path": f"/proc/{os.getpid()}/fd/{fd}"})

    def poll(self) -> list[Evaluated]:
        """Answers that are here, oldest first. If the process has died, every open request is answered with that."""
        self._flush()
        done: list[Evaluated] = []
        while True:
            try:
                data = os.read(self._read_fd, 1 << 16)
            except BlockingIOError:
                return done
            if not data:
                break
            done += [self._done(msgpack.unpackb(body)) for body in self._buffer.feed(data)]
        if self._open:
            failed = f"the evaluator ended: exit_code={self._process.wait(_CLOSE_S)}"
            done += [self._done({"id": cycle, "failed": failed}) for cycle in list(self._open)]
        return done

    def close(self) -> None:
        """End the process, whatever it does; safe to call twice."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def __enter__(self) -> EvaluatorProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        command = [self._python, "-m", "mpca.agent.evaluator"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._write_fd, self._read_fd = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._write_fd, False)
        os.set_blocking(self._read_fd, False)
        self._buffer = FrameBuffer()
        self._unsent = bytearray()
        self._send(self._load)

    def _done(self, answer: dict[str, Any]) -> Evaluated:
        cycle, result, failed = answer["id"], answer.get("result", {}), answer.get("failed")
        os.close(self._open.pop(cycle))
        if failed is not None:
            _log.warning("an evaluation failed: cycle=%d\n%s", cycle, failed)
        return Evaluated(cycle, result.get("error"), result.get("loss"), answer.get("seconds", 0.0), failed)

    def _send(self, request: dict[str, Any]) -> None:
        self._unsent += frame(msgpack.packb(request))
        self._flush()

    def _flush(self) -> None:
        """Write what the pipe takes; the rest goes with the next call."""
        try:
            while self._unsent:
                del self._unsent[: os.write(self._write_fd, self._unsent)]
        except BlockingIOError:
            pass
        except BrokenPipeError:  # it died: `poll` says so
            self._unsent.clear()


def _raw(one: RawTensor | np.ndarray) -> RawTensor:
    return one if isinstance(one, RawTensor) else RawTensor(str(one.dtype), one.shape, one.tobytes())
