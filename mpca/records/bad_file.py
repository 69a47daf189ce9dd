"""``bad.jsonl`` of a run folder: every record of the data that agents could not use, once, with its name and the reason.

One JSON object a line: ``record``, ``reason``, ``agent`` and ``t`` of whoever met it first. It is there once there is one, is
replaced as a whole (so it is small: `LIMIT` names, about 2 MB), and goes on from an earlier attempt's. Names beyond the limit,
and those that an agent met faster than it could tell them, are counted: a last line ``{"unnamed": n}``.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from mpca import strict_json
from mpca.private import replace_file

__all__ = ["LIMIT", "BadFile"]

log = logging.getLogger("mpca.records")
#: Names in the file. ImageNet with one bad record in a thousand has 1,300.
LIMIT = 10_000
_EVERY_S = 5.0  # between two writings


class BadFile:
    """Held in memory whole, so that a full disk or a removed folder loses nothing: the next writing has all."""

    def __init__(self, path: Path, limit: int = LIMIT, now: Callable[[], float] = time.monotonic) -> None:
        self.path, self._limit, self._now = path, limit, now
        self._lines: dict[str, bytes] = {}  # by record
        self._beyond = 0  # records that the limit left out, and those of earlier attempts that were not named
        self._dropped: dict[tuple[int, int], int] = {}  # (agent, incarnation) -> names that it could not tell
        self._changed = False
        self._next = 0.0
        self.error: OSError | None = None  # why the file is not what it should be
        with suppress(FileNotFoundError):
            self._load(path.read_bytes())

    @property
    def unnamed(self) -> int:
        """Records that were bad and are not named. One that several agents met counts for each of them."""
        return self._beyond + sum(self._dropped.values())

    @property
    def count(self) -> int:
        return len(self._lines) + self.unnamed

    def met(self, t: float, agent: int, incarnation: int, names: Sequence[Sequence[str]], dropped: int) -> None:
        """What an agent says: (record, reason) of each that is new to it, and how many in all it could not name."""
        for record, reason in names:
            if record in self._lines:
                continue
            self._changed = True
            if len(self._lines) < self._limit:
                self._lines[record] = _line({"record": record, "reason": reason, "agent": agent, "t": round(t, 3)})
            else:
                self._beyond += 1
        if dropped > self._dropped.get((agent, incarnation), 0):
            self._dropped[agent, incarnation] = dropped
            self._changed = True

    def text(self) -> bytes:
        """The file as it should be."""
        last = [_line({"unnamed": self.unnamed})] if self.unnamed else []
        return b"".join([*self._lines.values(), *last])

    def flush(self, at_once: bool = False) -> bool:
        """Write it if something is new, at most once in five seconds; whether nothing is left to be written."""
        if not self._changed:
            return True
        if not at_once and self._now() < self._next:
            return False
        self._next = self._now() + _EVERY_S
        try:
            replace_file(self.path, self.text())
        except OSError as error:
            if self.error is None:
                log.warning("bad records cannot be written down; they are kept in memory and tried again: %s", error)
            self.error = error
            return False
        self._changed, self.error = False, None
        return True

    def _load(self, data: bytes) -> None:
        for line in data.splitlines(keepends=True):
            try:
                values = strict_json.loads(line)
                if "unnamed" in values:
                    self._beyond += int(values["unnamed"])
                else:
                    self._lines[str(values["record"])] = line
            except (ValueError, TypeError, KeyError):
                log.warning("a line that no run wrote is left out: path=%s, line=%r", self.path, line[:100])


def _line(values: dict[str, object]) -> bytes:
    return (json.dumps(values, ensure_ascii=False) + "\n").encode(errors="replace")
