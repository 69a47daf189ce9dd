"""The executor's end of the control pipe, in Python: starts the real agent process and speaks the real protocol.

Both ends are checked: what the agent says passes a `Session` in the executor's role. Slots are reached as the JVM reaches
them, through ``/proc/<pid>/fd/<n>``.
"""

from __future__ import annotations

import inspect
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
import numpy as np
import numpy.typing as npt

from mpca.wire.codec import FrameReader, encode
from mpca.wire.messages import Begin, Hello, Install, Installed, Message, Progress, Snapshot, SnapshotRequest, Start
from mpca.wire.session import EXECUTOR, Session
from mpca.wire.slots import HEADER_BYTES, MODES, SlotHeader

__all__ = ["FakeExecutor", "wait_until"]

DEADLINE_S = 60.0
M = TypeVar("M", bound=Message)
R = TypeVar("R")


def wait_until(condition: Callable[[], R], what: str, deadline_s: float = DEADLINE_S, every_s: float = 0.01) -> R:
    """Wait for a condition, not for a duration; what it gives, once it gives something."""
    end = time.monotonic() + deadline_s
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        time.sleep(every_s)
    return found


class FakeExecutor:
    """One agent process and the pipe to it. A context manager that leaves nothing behind."""

    def __init__(
        self,
        function: Callable[..., Any],
        *args: Any,
        program: str = "mpca.agent.main",
        env: dict[str, str] | None = None,
        **start: Any,
    ) -> None:
        """Start an agent on `function(*args)`.

        Args:
            program: module that is the agent.
            env: its whole environment; None: ours.
            start: replaces fields of the Start message.
        """
        cloudpickle.register_pickle_by_value(inspect.getmodule(function))
        payload = cloudpickle.dumps((function, args, {}))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        self.process = subprocess.Popen(
            [sys.executable, "-m", program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0, env=env,
        )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._write_fd, self._read_fd = self.process.stdin.fileno(), self.process.stdout.fileno()
        self._session = Session(EXECUTOR)
        self._reader = FrameReader()
        self._inbox: deque[Message] = deque()
        self.progress: Progress | None = None  # the newest
        self.logged: dict[str, float] = {}  # the newest means of each metric
        self.hello: Hello | None = None
        self._segment_fd = -1
        fields = {
            "agent": 0, "incarnation": 0, "agents": 1, "run": "test", "seed": 1, "shards": 1, "layer_aligned": False,
            "method": {"name": "mpca", "shards": 1}, "task": "train",
            "payload": payload,
        }  # fmt: skip
        self.send(Start(**{**fields, **start}))

    # ---- messages ----

    def send(self, message: Message) -> None:
        self._session.sending(message)
        data = memoryview(encode(message))
        while data:
            data = data[os.write(self._write_fd, data) :]

    def expect(self, kind: type[M], deadline_s: float = DEADLINE_S) -> M:
        """The next message, which must be of this kind; Progress is noted and passed over."""
        end = time.monotonic() + deadline_s
        while True:
            while self._inbox:
                message = self._inbox.popleft()
                if isinstance(message, Progress):
                    self.progress = message
                    self.logged |= message.metrics
                    if kind is not Progress:
                        continue
                assert isinstance(message, kind), f"expected {kind.__name__}, got {message}\n{self.stderr}"
                return message
            self._receive(end - time.monotonic(), kind)

    def _receive(self, left_s: float, kind: type[Message]) -> None:
        ready, _, _ = select.select([self._read_fd], [], [], max(left_s, 0.0))
        assert ready, f"no {kind.__name__} in time\n{self.stderr}"
        data = os.read(self._read_fd, 1 << 20)
        assert data, f"the agent is gone, expected {kind.__name__}: exit={self.process.wait(5)}\n{self.stderr}"
        for message in self._reader.feed(data):
            self._session.received(message)
            self._inbox.append(message)

    # ---- what an executor does ----

    def meet(self) -> Hello:
        """Wait for Hello and open the segment."""
        self.hello = self.expect(Hello)
        self._segment_fd = os.open(f"/proc/{self.hello.pid}/fd/{self.hello.segment_fd}", os.O_RDWR)
        return self.hello

    def begin(self) -> None:
        self.send(Begin())

    def snapshot(self, cycle: int, shard: int) -> tuple[Snapshot, npt.NDArray[np.float32]]:
        """Ask for a shard, wait for it and read it."""
        self.send(SnapshotRequest(cycle, shard))
        return self.read_snapshot(cycle, shard)

    def train_some(self, shard: int = 0) -> int:
        """Begin, and ask until updates were made (the first request may be served before the first step); the next cycle."""
        self.begin()
        for cycle in range(1000):
            if self.snapshot(cycle, shard)[0].updates:
                return cycle + 1
        raise AssertionError(f"the agent makes no updates\n{self.stderr}")

    def read_snapshot(self, cycle: int, shard: int) -> tuple[Snapshot, npt.NDArray[np.float32]]:
        answer = self.expect(Snapshot)
        assert (answer.cycle, answer.shard) == (cycle, shard)
        offset = self._slots[0]
        header = SlotHeader.unpack(os.pread(self._segment_fd, HEADER_BYTES, offset))
        assert header.seq % 2 == 0
        assert (header.version, header.shard, header.updates) == (cycle % (1 << 64), shard, answer.updates)
        assert header.length == 4 * self.elements(shard)
        return answer, np.frombuffer(os.pread(self._segment_fd, header.length, offset + HEADER_BYTES), "<f4")

    def offer(
        self, shard: int, version: int, vector: npt.NDArray[np.float32], mode: str = "install", alpha: float = 0.05
    ) -> None:
        """Write an arrival and send Install."""
        data, offset = np.asarray(vector, "<f4").tobytes(), self._slots[1 + shard]
        seq = SlotHeader.unpack(os.pread(self._segment_fd, HEADER_BYTES, offset)).seq
        for step, body in ((1, data), (2, b"")):
            header = SlotHeader(shard, seq + step, version, 0, len(data), MODES[mode])
            os.pwrite(self._segment_fd, header.pack(), offset)
            os.pwrite(self._segment_fd, body, offset + HEADER_BYTES)
        self.send(Install(shard, version, mode, alpha))

    def install(
        self, shard: int, version: int, vector: npt.NDArray[np.float32], mode: str = "install", alpha: float = 0.05
    ) -> Installed:
        self.offer(shard, version, vector, mode, alpha)
        return self.expect(Installed)

    def elements(self, shard: int) -> int:
        assert self.hello is not None
        return self.hello.bounds[shard + 1] - self.hello.bounds[shard]

    @property
    def _slots(self) -> list[int]:
        assert self.hello is not None
        return self.hello.slots

    # ---- the process ----

    @property
    def stderr(self) -> str:
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode()

    def end(self) -> int:
        """Wait for the agent to end; its exit code."""
        return self.process.wait(DEADLINE_S)

    def hang_up(self) -> None:
        """Close the agent's stdin, as a dying JVM does."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def alive(self) -> bool:
        return self.process.poll() is None

    def __enter__(self) -> FakeExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        if self.alive():
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self._errors.close()
        if self._segment_fd >= 0:
            os.close(self._segment_fd)
        group = self.process.pid
        left = [one.name for one in Path("/proc").iterdir() if one.name.isdigit() and _group_of(one) == group]
        if left:
            os.killpg(group, signal.SIGKILL)
        assert not left, f"the agent left processes of its group behind: {left}"


def _group_of(process: Path) -> int:
    """Process group, or -1 if it is gone or a zombie (whose parent has yet to look)."""
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] == "Z" else int(fields[2])
