"""The run's data in this agent: the newest list of readers that it received, and the stream that follows it.

Not for the plan of who reads what (`mpca.data.plan`). For the agent's one thread.
"""

from __future__ import annotations

from typing import Any, Protocol

from mpca.agent.bad_names import BadNames
from mpca.data.plan import Readers
from mpca.errors import RemoteProtocolError

__all__ = ["Reading", "Stream"]


class Stream(Protocol):
    """The needed part of `mpca.data.stream.Stream` and `mpca.data.epochs.Epochs`; importing the former would import torch."""

    @property
    def position(self) -> tuple[int, int]: ...
    @property
    def ahead(self) -> int: ...
    def update_readers(self, readers: Readers) -> None: ...


class Reading:
    """The readers, the stream and bad records. There is no stream until the train function asks for one."""

    def __init__(self) -> None:
        self.readers: Readers | None = None  # None: all agents from the beginning
        self.stream: Stream | None = None
        self.bad = BadNames()  # bad records of all streams

    def told(self, readers: dict[str, Any]) -> None:
        """Take a list of readers that the driver sent.

        Raises:
            RemoteProtocolError: it is no list of readers.
        """
        try:
            self.readers = Readers.from_dict(readers)
        except (KeyError, TypeError, ValueError) as error:
            raise RemoteProtocolError(f"not a list of readers: {type(error).__name__}: {error}") from error
        if self.stream is not None:
            self.stream.update_readers(self.readers)

    @property
    def position(self) -> list[int]:
        """The stream's position, for Progress."""
        return [] if self.stream is None else [*self.stream.position, self.stream.ahead]
