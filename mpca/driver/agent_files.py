"""The files with agents' own states that a backup waits for: executors write them while training goes on.

A backup has all of them or none, since a run goes on with all agents as they were, or at the joint model. So when one cannot be
written, or its agent is gone, the backup is written without, and a warning says why.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Any

from mpca.driver.events import AgentSaved, ExecutorLost
from mpca.driver.instructions import SaveJoint
from mpca.storage import BackupState
from mpca.timeouts import AGENTS_SAVED_S

__all__ = ["AgentFiles"]

log = logging.getLogger("mpca.backup")


@dataclass
class AgentFiles:
    """Of one backup. Times are seconds of the machine's clock.

    Args:
        asked: the files, and who writes them.
        state: the backup without them.
        agents: how many agents the run wants.
        now: when the agents were asked.
    """

    asked: SaveJoint
    state: BackupState
    agents: int
    now: float
    seconds: float = 0.0  # that the slowest of them took
    _rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    _why: str = ""  # the backup has none

    def __post_init__(self) -> None:
        if len(self.asked.files) < self.agents:
            self._why = f"{len(self.asked.files)} of {self.agents} agents train"

    def saved(self, event: AgentSaved) -> None:
        """An executor says what became of a file."""
        name = self.asked.files.get(event.id.on(event.executor))
        if event.number != self.asked.number or name is None:
            return
        if event.error:
            self._why = self._why or f"agent {event.agent}: {event.error}"
        self.seconds = max(self.seconds, event.seconds)
        self._rows[str(event.agent)] = {"file": name, "bytes": event.bytes, "sha256": event.sha256}

    def lost(self, event: ExecutorLost) -> None:
        """An executor is gone, with what it has not written yet."""
        for who in self.asked.files:
            if who.executor == event.executor and str(who.agent) not in self._rows:
                self._why = self._why or f"executor {event.executor} was lost"

    def complete(self, now: float) -> BackupState | None:
        """The backup, once all files are there, or one cannot come; None: it still waits."""
        if not self._why and len(self._rows) == len(self.asked.files):
            return replace(self.state, agents=dict(sorted(self._rows.items(), key=lambda row: int(row[0]))))
        if not self._why and now - self.now > AGENTS_SAVED_S:
            missing = sorted(who.agent for who in self.asked.files if str(who.agent) not in self._rows)
            self._why = f"agents {missing} were not written within {AGENTS_SAVED_S:.0f} s"
        if not self._why:
            return None
        if self.asked.files:  # else all train functions have returned, or none has begun
            log.warning("the backup of cycle %d is without the agents' own states: %s", self.state.cycle, self._why)
        return self.state
