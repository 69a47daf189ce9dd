"""How many updates a joint model is made of, by the records of its run. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

__all__ = ["Ledger"]


class Ledger:
    """Takes lines of records in the order in which they were written."""

    def __init__(self, agents: int) -> None:
        self._all = agents
        self.agents: dict[int, dict[str, Any]] = {}  # of this attempt: agent -> the record of its newest start
        self.attempts = 0
        self.full = 0  # cycles so far that all agents took part in, in all attempts
        self._shards = 1
        self._updates: dict[int, int] = {}  # by cycle, of all agents together

    def take(self, lines: Iterable[str | bytes]) -> None:
        for line in lines:
            self._take(json.loads(line))

    @property
    def updates(self) -> int:
        """Of all agents, in the mean over shards. What a resume went back behind is not in the model, nor in here."""
        return round(sum(self._updates.values()) / self._shards)

    @property
    def cycles(self) -> int:
        return len(self._updates)

    def _take(self, one: dict[str, Any]) -> None:
        if one["kind"] == "run":
            self.attempts += 1
            self.agents = {}
        if one["kind"] in ("run", "begin"):
            self._shards = one.get("shards") or self._shards
        elif one["kind"] == "agent" and one["event"] in ("started", "replaced"):
            self.agents[one["index"]] = one
        elif one["kind"] == "cycle":
            if one["cycle"] in self._updates:  # a resume has gone back behind it
                self._updates = {cycle: tau for cycle, tau in self._updates.items() if cycle < one["cycle"]}
            self._updates[one["cycle"]] = sum(part["tau"] for part in one["contributors"].values())
            self.full += len(one["contributors"]) == self._all
