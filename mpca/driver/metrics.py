"""What agents log (`mpca.log`), put together: the mean over agents, now and over time. By agent it is in the records."""

from __future__ import annotations

from typing import Any

from mpca.driver.events import AgentProgress
from mpca.wire.messages import metrics_every_s

__all__ = ["LoggedMetrics"]


class LoggedMetrics:
    """Of one run. Times are seconds since the run began."""

    def __init__(self) -> None:
        #: {"kind": "metrics", "t", "metrics": {name: mean over agents}}; as often as an agent reports.
        self.history: list[dict[str, Any]] = []
        self._newest: dict[int, dict[str, float]] = {}  # by agent
        self._counts: dict[int, int] = {}  # agent -> its oldest incarnation that counts
        self._first: str | None = None  # the metric that was logged first
        self._began: float | None = None

    def heard(self, event: AgentProgress, t: float) -> None:
        """An agent has logged something. What an older incarnation still says does not count.

        Args:
            event: its report.
            t: when it came.
        """
        since = self._counts.setdefault(event.agent, event.incarnation)
        if event.incarnation < since:
            return
        if event.incarnation > since:
            self.lost(event.agent, event.incarnation - 1)
        self._first = self._first or next(iter(event.metrics))
        self._newest.setdefault(event.agent, {}).update(event.metrics)
        self._began = t if self._began is None else self._began
        if not self.history or t - self.history[-1]["t"] >= metrics_every_s(t - self._began):
            self.note(t)

    def lost(self, agent: int, incarnation: int) -> None:
        """An agent is gone: what it logged counts no more, nor what still comes of it."""
        self._newest.pop(agent, None)
        self._counts[agent] = incarnation + 1

    def back(self, agent: int, incarnation: int) -> None:
        """An agent that counted as lost is there after all."""
        self._counts[agent] = incarnation

    def note(self, t: float) -> None:
        """Put the means as they are now into the history."""
        names = dict.fromkeys(name for one in self._newest.values() for name in one)
        if names:
            self.history.append({"kind": "metrics", "t": t, "metrics": {name: self._mean(name) for name in names}})

    @property
    def first(self) -> tuple[str, float] | None:
        """The metric that was logged first, and its mean over agents now; None: nothing was logged."""
        mean = None if self._first is None else self._mean(self._first)
        return None if mean is None else (str(self._first), mean)

    def _mean(self, name: str) -> float | None:
        values = [one[name] for one in self._newest.values() if name in one]
        return sum(values) / len(values) if values else None
