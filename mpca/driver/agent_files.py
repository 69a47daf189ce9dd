"""The files with agents' own states that a backup waits for: executors write them while training goes on.

A backup has all of them or none, since a run goes on with all agents as they were, or at the joint model. So when one cannot be
written, or its agent is gone, the backup is written without, and a warning says why. It waits for the others all the same: what
they write later would stay in the hidden folder.
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
    _open: set[int] = field(init=False)  # agents of whose files nothing is known yet
    _why: str = ""  # the backup has none

    def __post_init__(self) -> None:
        self._open = {who.agent for who in self.asked.files}
        if len(self.asked.files) < self.agents:
            self._why = f"{len(self.asked.files)} of {self.agents} agents train"

    def saved(self, event: AgentSaved) -> None:
        """An executor says what became of a file."""
        name = self.asked.files.get(event.id.on(event.executor))
        if event.number != self.asked.number or name is None:
            return
        if event.error:
            self._why = self._why or f"agent {event.agent}: {event.error}"
        self._open.discard(event.agent)
        self.seconds = max(self.seconds, event.seconds)
        self._rows[str(event.agent)] = {"file": name, "bytes": event.bytes, "sha256": event.sha256}

    def lost(self, event: ExecutorLost) -> None:
        """An executor is gone, with what it has not written yet."""
        for who in self.asked.files:
            if who.executor == event.executor and who.agent in self._open:
                self._open.remove(who.agent)
                self._why = self._why or f"executor {event.executor} was lost"

    def complete(self, now: float) -> BackupState | None:
        """The backup, once it is known what became of each file; None: it still waits."""
        if self._open and now - self.now <= AGENTS_SAVED_S:
            return None
        if self._open:
            self._why = self._why or f"agents {sorted(self._open)} were not written within {AGENTS_SAVED_S:.0f} s"
        if not self._why:
            return replace(self.state, agents=dict(sorted(self._rows.items(), key=lambda row: int(row[0]))))
        if self.asked.files:  # else all train functions have returned, or none has begun
            log.warning("the backup of cycle %d is without the agents' own states: %s", self.state.cycle, self._why)
        return self.state
