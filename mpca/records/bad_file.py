"""``bad.jsonl`` of a run folder: each record of the data that agents could not use, once, with its name and the reason.

A line is a JSON object: ``record``, ``reason``, and ``agent`` and ``t`` (seconds) of the first report. The file exists from
the first bad record on. Every write replaces the whole file, so the file is kept small (`LIMIT` names, about 2 MB). It
continues the file of an earlier attempt. A last line ``{"unnamed": n}`` counts the names beyond the limit, and those that an
agent found faster than it could report them.
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
#: Most names in the file. ImageNet with one bad record in a thousand has 1,300.
LIMIT = 10_000
_EVERY_S = 5.0  # between two writings


class BadFile:
    """Keeps the whole file in memory, so that a full disk or a removed folder loses nothing: the next write has all names.

    Args:
        path: the file; the one of an earlier attempt is read.
        limit: most names in the file.
        now: the clock, in seconds, monotonic.
    """

    def __init__(self, path: Path, limit: int = LIMIT, now: Callable[[], float] = time.monotonic) -> None:
        self.path, self._limit, self._now = path, limit, now
        self._lines: dict[str, bytes] = {}  # by record
        self._beyond = 0  # records beyond the limit, and unnamed ones of earlier attempts
        self._dropped: dict[tuple[int, int], int] = {}  # (agent, incarnation) -> number of names that it could not report
        self._changed = False
        self._next = 0.0
        self.error: OSError | None = None  # why the file is out of date
        with suppress(FileNotFoundError):
            self._load(path.read_bytes())

    @property
    def unnamed(self) -> int:
        """Number of bad records without a name. A record that several agents found counts for each of them."""
        return self._beyond + sum(self._dropped.values())

    @property
    def count(self) -> int:
        """Number of bad records, with and without a name."""
        return len(self._lines) + self.unnamed

    def met(self, t: float, agent: int, incarnation: int, names: Sequence[Sequence[str]], dropped: int) -> None:
        """Add an agent's report.

        Args:
            t: seconds since the run began.
            agent: the agent's number.
            incarnation: counts the agent's processes.
            names: (record, reason) of each record that is new to the agent.
            dropped: number of all records that this incarnation could not name.
        """
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
        """The file's bytes, up to date."""
        last = [_line({"unnamed": self.unnamed})] if self.unnamed else []
        return b"".join([*self._lines.values(), *last])

    def flush(self, at_once: bool = False) -> bool:
        """Write the file if names are new, at most once in five seconds.

        Args:
            at_once: write now, even if five seconds are not over.

        Returns:
            Whether the file is up to date.
        """
        if not self._changed:
            return True
        if not at_once and self._now() < self._next:
            return False
        self._next = self._now() + _EVERY_S
        try:
            replace_file(self.path, self.text())
        except OSError as error:
            if self.error is None:
                log.warning("bad records cannot be written; they are kept in memory and tried again: %s", error)
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
