"""What this agent reads of the run's data: the membership that it was told last, and the stream that goes by it.

Not for who reads what (`mpca.data.plan`). On the agent's one thread.
"""

from __future__ import annotations

from typing import Any, Protocol

from mpca.agent.bad_names import BadNames
from mpca.data.plan import Membership
from mpca.errors import RemoteProtocolError

__all__ = ["Reading", "Stream"]


class Stream(Protocol):
    """What of `mpca.data.stream.Stream` and `mpca.data.epochs.Epochs` is needed here; importing the first costs torch."""

    @property
    def position(self) -> tuple[int, int]: ...
    @property
    def ahead(self) -> int: ...
    def update_members(self, membership: Membership) -> None: ...


class Reading:
    """Nothing, until the train function asks for a stream."""

    def __init__(self) -> None:
        self.membership: Membership | None = None  # None: as the run began
        self.stream: Stream | None = None
        self.bad = BadNames()  # of any stream

    def told(self, members: dict[str, Any]) -> None:
        """Raises RemoteProtocolError when it is no membership."""
        try:
            self.membership = Membership.from_dict(members)
        except (KeyError, TypeError, ValueError) as error:
            raise RemoteProtocolError(f"not a membership: {type(error).__name__}: {error}") from error
        if self.stream is not None:
            self.stream.update_members(self.membership)

    @property
    def position(self) -> list[int]:
        """As Progress says it."""
        return [] if self.stream is None else [*self.stream.position, self.stream.ahead]
