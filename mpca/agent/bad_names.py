"""Bad records that this agent's streams met and the driver has not heard of. No I/O.

Filled by a stream's thread, emptied by the agent's own between two batches; a deque needs no lock for that.
"""

from __future__ import annotations

from collections import deque

__all__ = ["BadNames"]

#: Names that may wait. A Progress, of which there are two a second, takes `_AT_ONCE` of them at most.
_WAITING = 10_000
_AT_ONCE = 100
_LONGEST = 500  # characters of a name, and of a reason


class BadNames:
    """Names and reasons, in the order in which they were met."""

    def __init__(self) -> None:
        self._waiting: deque[list[str]] = deque()
        self._known: set[int] = set()  # hashes of names: a loop over a stream meets each again
        self.dropped = 0  # records whose names there was no room for

    def __bool__(self) -> bool:
        """Whether some wait."""
        return bool(self._waiting)

    def add(self, record: str, reason: str) -> None:
        """Of the stream's thread."""
        if hash(record) in self._known:
            return
        self._known.add(hash(record))
        if len(self._waiting) >= _WAITING:
            self.dropped += 1
        else:
            self._waiting.append([_short(record), _short(reason)])

    def take(self) -> list[list[str]]:
        """The next ones, for a Progress; of the agent's thread."""
        return [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]


def _short(text: str) -> str:
    """Valid UTF-8, whatever a file of the data is called; its end tells more than its beginning."""
    text = text.encode(errors="replace").decode()
    return text if len(text) <= _LONGEST else "..." + text[3 - _LONGEST :]
