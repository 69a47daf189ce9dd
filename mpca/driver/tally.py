"""Sums over a run for the summary and the progress line: steps, samples, pauses and bytes, over all incarnations."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from mpca.driver.events import AgentProgress
from mpca.wire.agent_ref import AgentId

__all__ = ["Tally"]

# images/s is the slope over this many seconds. Agents report twice a second, so that is long enough.
RATE_WINDOW_S = 5.0


@dataclass(slots=True)
class Tally:
    """See the module's text."""

    agents: int
    first_step: float | None = None  # seconds of the machine: the first optimiser update that an agent reported
    cycles: int = 0  # cycles that ended in this attempt
    bytes_in_driver: int = 0
    bytes_out_driver: int = 0
    backups: int = 0
    tau: float | None = None  # mean over the contributors of the newest cycle, or of the newest exchange of one agent
    _progress: dict[AgentId, AgentProgress] = field(default_factory=dict)
    _samples: int = 0  # of the newest reports together
    _updates: int = 0
    _rate: deque[tuple[float, int, int]] = field(default_factory=deque)  # (seconds of the machine, samples, updates)

    def progress(self, event: AgentProgress, now: float) -> None:
        """Count what an agent reports, at `now` (seconds of the machine)."""
        if event.steps > 0:
            began = now - event.train_s
            self.first_step = began if self.first_step is None else min(self.first_step, began)
        before = self._progress.get(event.id)
        self._samples += event.samples - (before.samples if before else 0)
        self._updates += event.steps - (before.steps if before else 0)
        self._progress[event.id] = event
        self._rate.append((now, self._samples, self._updates))
        while now - self._rate[0][0] > RATE_WINDOW_S and len(self._rate) > 2:
            self._rate.popleft()

    def cycle(self, fields: dict[str, Any]) -> None:
        """Count a cycle.

        Args:
            fields: of its record.
        """
        self.cycles += 1
        self.bytes_in_driver += fields["bytes"]["driver_in"]
        self.bytes_out_driver += fields["bytes"]["driver_out"]
        taus = [one["tau"] for one in fields["contributors"].values()]
        if taus:
            self.tau = sum(taus) / len(taus)

    def exchange(self, fields: dict[str, Any]) -> None:
        """Count an exchange of one agent, as a cycle.

        Args:
            fields: of its record.
        """
        self.cycles += not fields["reason"]
        self.bytes_in_driver += fields["bytes"]["driver_in"]
        self.bytes_out_driver += fields["bytes"]["driver_out"]
        self.tau = fields["tau"]

    @property
    def steps(self) -> list[int]:
        """Optimiser updates by agent, over its incarnations."""
        totals = [0] * self.agents
        for who, event in self._progress.items():
            totals[who.agent] += event.steps
        return totals

    @property
    def samples(self) -> int | None:
        """Samples of all agents. None: there were updates, but the data come from the user's own loader, which counts none."""
        return self._samples if self._samples or not self._updates else None

    @property
    def data_remote(self) -> int:
        """Bytes of the data set that came to agents from other hosts."""
        return sum(event.data_remote for event in self._progress.values())

    @property
    def samples_per_s(self) -> float | None:
        """Samples of all agents a second, over the last `RATE_WINDOW_S`; None: unknown."""
        return self._slope(1)

    @property
    def updates_per_s(self) -> float | None:
        """Updates of all agents a second, over the last `RATE_WINDOW_S`; None: unknown."""
        return self._slope(2)

    def _slope(self, what: int) -> float | None:
        if len(self._rate) < 2 or self._rate[-1][0] <= self._rate[0][0]:
            return None
        first, last = self._rate[0], self._rate[-1]
        if not last[what]:  # nothing has been counted yet, or nobody counts it
            return None
        return (last[what] - first[what]) / (last[0] - first[0])

    @property
    def pause_share(self) -> float | None:
        """Seconds that agents were interrupted over seconds that they trained; None: they have not trained."""
        trained = sum(event.train_s for event in self._progress.values())
        paused = sum(event.pause_s for event in self._progress.values())
        return paused / trained if trained > 0 else None
