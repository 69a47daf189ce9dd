"""Bad records that this agent's streams found and that were not yet reported to the driver. No I/O.

A stream's thread adds names; the agent's own thread takes them between two batches. A deque needs no lock for that.
"""

from __future__ import annotations

from collections import deque

__all__ = ["BadNames"]

#: Most names that may wait. A Progress takes at most `_AT_ONCE` of them, and there are two in a second.
_WAITING = 10_000
_AT_ONCE = 100
_LONGEST = 500  # most characters of a name, and of a reason


class BadNames:
    """Names and reasons, in the order in which they were found."""

    def __init__(self) -> None:
        self._waiting: deque[list[str]] = deque()
        self._known: set[int] = set()  # hashes of names, since each epoch finds a bad record again
        self.dropped = 0  # number of records whose names found no room

    def __bool__(self) -> bool:
        """Whether names wait."""
        return bool(self._waiting)

    def add(self, record: str, reason: str) -> None:
        """Add a record; called by the stream's thread."""
        if hash(record) in self._known:
            return
        self._known.add(hash(record))
        if len(self._waiting) >= _WAITING:
            self.dropped += 1
        else:
            self._waiting.append([_short(record), _short(reason)])

    def take(self) -> list[list[str]]:
        """Take the next names, for a Progress; called by the agent's thread."""
        return [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]


def _short(text: str) -> str:
    """Text as valid UTF-8 of limited length. The end of a long text is kept, since it says more than the beginning."""
    text = text.encode(errors="replace").decode()
    return text if len(text) <= _LONGEST else "..." + text[3 - _LONGEST :]
