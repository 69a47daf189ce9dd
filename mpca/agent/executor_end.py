"""The executor's end of an agent's pipe in Python, for benches without Spark and for tests; the agent's end is in `link.py`.

What the agent says passes a `Session` in the executor's role. Slots are reached as the JVM reaches them, through
``/proc/<pid>/fd/<n>``.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from mpca.errors import MpcaError
from mpca.wire.codec import FrameReader, encode
from mpca.wire.messages import (
    Begin,
    Hello,
    Install,
    Installed,
    Message,
    Progress,
    Snapshot,
    SnapshotRequest,
)
from mpca.wire.session import EXECUTOR, Session
from mpca.wire.slots import HEADER_BYTES, MODES, SlotHeader

__all__ = ["AgentEnd"]

M = TypeVar("M", bound=Message)


class AgentEnd:
    """The executor's end of one agent's pipe. Who starts the process closes the pipe's descriptors; `close` the rest.

    Args:
        write_fd: to the agent's stdin.
        read_fd: from its stdout.
        last_words: what else is known of an agent that says nothing, or something else than is expected.
        patience_s: how long to wait for a message, in seconds.
    """

    def __init__(self, write_fd: int, read_fd: int, last_words: Callable[[], str], patience_s: float) -> None:
        self._write_fd, self._read_fd, self._last_words, self._patience_s = write_fd, read_fd, last_words, patience_s
        self._session, self._reader = Session(EXECUTOR), FrameReader()
        self._inbox: deque[Message] = deque()
        self._segment_fd = -1
        self.progress: Progress | None = None  # the newest
        self.logged: dict[str, float] = {}  # the newest means of each metric
        self.hello: Hello | None = None

    def close(self) -> None:
        if self._segment_fd >= 0:
            os.close(self._segment_fd)

    # ---- messages ----

    def send(self, message: Message) -> None:
        self._session.sending(message)
        data = memoryview(encode(message))
        while data:
            data = data[os.write(self._write_fd, data) :]

    def expect(self, kind: type[M], patience_s: float | None = None) -> M:
        """The next message, which must be of this kind; Progress is noted and passed over.

        Raises:
            MpcaError: none came in time, the agent is gone, or it said something else.
        """
        until = time.monotonic() + (self._patience_s if patience_s is None else patience_s)
        while True:
            while self._inbox:
                message = self._inbox.popleft()
                self._note(message)
                if isinstance(message, Progress) and kind is not Progress:
                    continue
                if not isinstance(message, kind):
                    raise MpcaError(f"expected {kind.__name__}, got {message}\n{self._last_words()}")
                return message
            if not self._receive(until - time.monotonic()):
                raise MpcaError(f"no {kind.__name__} in time\n{self._last_words()}")

    def listen(self, seconds: float) -> None:
        """Hear of progress for so long; other messages wait for who expects them."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._receive(left)
            for message in self._inbox:
                self._note(message)
            self._inbox = deque(one for one in self._inbox if not isinstance(one, Progress))

    def _note(self, message: Message) -> None:
        if isinstance(message, Progress):
            self.progress = message
            self.logged |= message.metrics

    def _receive(self, left_s: float) -> bool:
        if not select.select([self._read_fd], [], [], max(left_s, 0.0))[0]:
            return False
        data = os.read(self._read_fd, 1 << 20)
        if not data:
            raise MpcaError(f"the agent is gone\n{self._last_words()}")
        for message in self._reader.feed(data):
            self._session.received(message)
            self._inbox.append(message)
        return True

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

    def read_snapshot(
        self, cycle: int, shard: int, into: npt.NDArray[np.float32] | None = None
    ) -> tuple[Snapshot, npt.NDArray[np.float32]]:
        """Wait for the answer and read it, into a new array if none is given."""
        answer = self.expect(Snapshot)
        assert (answer.cycle, answer.shard) == (cycle, shard)
        offset = self._slots[0]
        header = SlotHeader.unpack(os.pread(self._segment_fd, HEADER_BYTES, offset))
        assert header.seq % 2 == 0
        assert (header.version, header.shard, header.updates) == (cycle % (1 << 64), shard, answer.updates)
        assert header.length == 4 * self.elements(shard)
        values = np.empty(self.elements(shard), "<f4") if into is None else into
        read = os.preadv(self._segment_fd, [values.data], offset + HEADER_BYTES)
        assert read == header.length
        return answer, values

    def offer(
        self, shard: int, version: int, vector: npt.NDArray[np.float32], mode: str = "install", alpha: float = 0.05
    ) -> None:
        """Write an arrival and send Install."""
        data, offset = np.ascontiguousarray(vector, "<f4").view(np.uint8).data, self._slots[1 + shard]
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
