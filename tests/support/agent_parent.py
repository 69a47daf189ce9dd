"""The executor's end of a preloaded parent, in Python: starts the real one, and has it fork agents."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgpack

__all__ = ["AgentParent", "ForkedAgent"]

DEADLINE_S = 60.0


class ForkedAgent:
    """What `subprocess.Popen` is to a process that was started: pipes, pid and end of a forked one."""

    def __init__(self, parent: AgentParent, number: int, errors: IO[bytes]) -> None:
        self._parent, self.number = parent, number
        stem = parent.ask("open", number, "opened")[0]
        self.stdin: IO[bytes] = open(f"{stem}.in", "wb", buffering=0)  # noqa: SIM115 (closed by whom it is for, as Popen's)
        self.stdout: IO[bytes] = open(f"{stem}.out", "rb", buffering=0)  # noqa: SIM115
        output = open(f"{stem}.err", "rb", buffering=0)  # noqa: SIM115 (closed by the thread)
        self.pid: int = parent.ask("fork", number, "forked")[0]
        self._reader = threading.Thread(target=_copy, args=(output, errors), daemon=True)
        self._reader.start()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        self._parent.listen(0)
        code = self._parent.ended.get(self.number)
        self.returncode = 128 - code if code is not None and code > 128 else code  # as Popen says signals
        return self.returncode

    def wait(self, timeout: float = DEADLINE_S) -> int:
        end = time.monotonic() + timeout
        while self.poll() is None:
            assert time.monotonic() < end, f"agent {self.number} does not end"
            self._parent.listen(0.01)
        self._parent.say("end", self.number)  # what is left of its group goes first, as the executor does it
        self._parent.say("reap", self.number)
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < end:
                os.killpg(self.pid, 0)
                time.sleep(0.01)
        self._reader.join(timeout)
        return self.returncode  # type: ignore[return-value]  # it has just been found

    def kill(self) -> None:
        self._parent.say("end", self.number)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def _copy(output: IO[bytes], errors: IO[bytes]) -> None:
    with output:
        while data := output.read(1 << 16):
            errors.write(data)
            errors.flush()


class AgentParent:
    """One parent; a context manager that leaves nothing behind.

    Args:
        program: module that is the parent.
        folder: its working folder.
        env: added to our environment.
    """

    def __init__(self, folder: Path, program: str = "mpca.agent.parent", **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path]), **env},
        )  # fmt: skip
        self._buffer = b""
        self._said: deque[list[Any]] = deque()
        self._numbers = 0
        self.ended: dict[int, int] = {}  # exit codes
        self.pid, self.folder = self._expect("ready")

    def start(self, errors: IO[bytes]) -> ForkedAgent:
        """Fork an agent, which prints into `errors`."""
        self._numbers += 1
        return ForkedAgent(self, self._numbers, errors)

    def say(self, word: str, number: int) -> None:
        assert self.process.stdin is not None
        body = msgpack.packb([word, number])
        self.process.stdin.write(struct.pack(">I", len(body)) + body)

    def ask(self, word: str, number: int, answer: str) -> list[Any]:
        self.say(word, number)
        said, *rest = self._expect(answer)
        assert said == number
        return rest

    def _expect(self, word: str) -> list[Any]:
        said = self.answer()
        assert said[0] == word, said
        return said[1:]

    def answer(self) -> list[Any]:
        """What it says next, an agent's end left out."""
        end = time.monotonic() + DEADLINE_S
        while not self._said:
            assert time.monotonic() < end, "the parent says nothing"
            self.listen(0.1)
        return self._said.popleft()

    def listen(self, timeout: float) -> None:
        """Take in what it has said; agents' ends go into `ended`."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        if not ready:
            return
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        assert data, f"the parent has ended: {self.process.wait(DEADLINE_S)}"
        self._buffer += data
        while len(self._buffer) >= 4:
            (length,) = struct.unpack_from(">I", self._buffer)
            if len(self._buffer) < 4 + length:
                return
            said = msgpack.unpackb(self._buffer[4 : 4 + length])
            self._buffer = self._buffer[4 + length :]
            if said[0] == "ended":
                self.ended[said[1]] = said[2]
            else:
                self._said.append(said)

    def __enter__(self) -> AgentParent:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(DEADLINE_S)
        finally:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process.stdout.close()
