"""Both ends of a control pipe in one process: the agent's `Link`, and an executor that says what the test says."""

from __future__ import annotations

import os
import select

from mpca.agent.link import Link
from mpca.wire.codec import FrameReader, encode
from mpca.wire.messages import Message, Start

__all__ = ["START", "PipeEnds"]

DEADLINE_S = 30.0
START = Start(0, 0, 2, "test", 1, 1, False, {"name": "mpca", "shards": 1}, "train", b"")


class PipeEnds:
    """A context manager that closes what is open still."""

    def __init__(self) -> None:
        self._agent_reads, self.write_fd = os.pipe()
        self.read_fd, self._agent_writes = os.pipe()
        self.link = Link(self._agent_reads, self._agent_writes)
        self._reader = FrameReader()

    def __enter__(self) -> PipeEnds:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in {self._agent_reads, self.write_fd, self.read_fd, self._agent_writes} - {-1}:
            os.close(fd)

    def say(self, *messages: Message) -> None:
        os.write(self.write_fd, b"".join(map(encode, messages)))

    def heard(self) -> list[Message]:
        """What the agent has said since; waits for the first of it."""
        ready, _, _ = select.select([self.read_fd], [], [], DEADLINE_S)
        assert ready, "the agent says nothing"
        return list(self._reader.feed(os.read(self.read_fd, 1 << 20)))

    def end_writing(self) -> None:
        os.close(self.write_fd)
        self.write_fd = -1

    def end_reading(self) -> None:
        os.close(self.read_fd)
        self.read_fd = -1
