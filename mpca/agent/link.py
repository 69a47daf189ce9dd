"""The agent's end of the control pipe: descriptors, frames, session. Not for decisions.

Reading blocks only when a time-out is given. Writing may block, but not for long, since the executor always reads.

A process that the train function forks has the descriptors too. It may not use them: it would read what the agent is told.
"""

from __future__ import annotations

import os
import select
from collections import deque

from mpca.errors import ConfigError
from mpca.wire.codec import FrameReader, encode
from mpca.wire.messages import Message
from mpca.wire.session import AGENT, CLOSED, Session

__all__ = ["Link", "LinkClosed"]

_READ_BYTES = 1 << 20


class LinkClosed(ConnectionError):
    """End of file, or a broken pipe: the executor is gone."""


class Link:
    """Two descriptors, for one thread."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd, self._write_fd = read_fd, write_fd
        self._poll = select.poll()
        self._poll.register(read_fd, select.POLLIN)
        self._reader = FrameReader()
        self._session = Session(AGENT)
        self._inbox: deque[Message] = deque()
        self.cut = False  # whether this process is a fork of the agent's

    def cut_off(self) -> None:
        """Let this process, a fork of the agent's, say and hear nothing."""
        self.cut = True

    @property
    def ended(self) -> bool:
        """Whether the agent's last message was sent."""
        return self._session.state == CLOSED

    def receive(self, timeout_s: float | None = 0.0) -> list[Message]:
        """All messages that have come. Waits up to `timeout_s` seconds (None: without limit) for the first.

        Raises:
            LinkClosed: end of file, once all messages before it were returned.
            RemoteProtocolError: the executor sent bytes or a message that the protocol does not allow.
        """
        self._fill(0.0 if self._inbox else timeout_s)
        messages = list(self._inbox)
        self._inbox.clear()
        return messages

    def peek(self, kind: type[Message]) -> Message | None:
        """Take the first waiting message of this kind, if there is one; the others stay, in order."""
        if not self.waiting(kind):
            return None
        message = next(one for one in self._inbox if isinstance(one, kind))
        self._inbox.remove(message)
        return message

    def waiting(self, kind: type[Message]) -> bool:
        """Whether a message of this kind has come. All stay."""
        self._fill(0.0)
        return any(isinstance(one, kind) for one in self._inbox)

    def send(self, message: Message) -> None:
        """Send one message.

        Raises:
            ConfigError: this process is a fork of the agent's.
            LinkClosed: the executor no longer reads.
            LocalProtocolError: the protocol does not allow the message now.
        """
        self._refuse_forks()
        data = memoryview(encode(message))
        self._session.sending(message)
        try:
            while data:
                data = data[os.write(self._write_fd, data) :]
        except BrokenPipeError as error:
            raise LinkClosed("the executor no longer reads") from error

    def _fill(self, timeout_s: float | None) -> None:
        """Read until a message is complete, the time is over, or the pipe is empty."""
        self._refuse_forks()
        while self._poll.poll(None if timeout_s is None else timeout_s * 1000):
            data = os.read(self._read_fd, _READ_BYTES)
            if not data:
                if self._inbox:
                    return
                raise LinkClosed("end of file on the control pipe")
            for message in self._reader.feed(data):
                self._session.received(message)
                self._inbox.append(message)
            if self._inbox:
                timeout_s = 0.0

    def _refuse_forks(self) -> None:
        if self.cut:
            raise ConfigError(
                "this process was forked by the train function: it cannot ask mpca.stopping, call mpca.attach or step an "
                "attached optimizer; only the agent's own process can"
            )
