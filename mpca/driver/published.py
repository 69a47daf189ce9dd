"""A shard of the joint model on its way from the sum of its contributions to the agents."""

from __future__ import annotations

from dataclasses import dataclass, field

from mpca.driver.agent_id import AgentId

__all__ = ["LATE_ALONE_S", "PublishedShard", "Sum"]

#: No download is late before.
LATE_ALONE_S = 1.0


@dataclass(frozen=True, slots=True)
class Sum:
    order: int
    cycle: int
    shard: int
    length: int


@dataclass(slots=True)
class PublishedShard:
    """A published joint state on its way to the agents."""

    cycle: int
    shard: int
    broadcast: int
    version: int
    length: int
    alpha: float = 0.0  # of the pull towards it
    asked: set[AgentId] = field(default_factory=set)  # told to download it
    acked: set[AgentId] = field(default_factory=set)  # ... that have it
    since: float = 0.0  # machine time of the newest order that asks for it
    took: list[float] = field(default_factory=list)  # seconds until each acknowledgement

    def acknowledged(self, key: AgentId, now: float) -> None:
        if key in self.asked and key not in self.acked:
            self.acked.add(key)
            self.took.append(now - self.since)

    def overdue(self, now: float) -> bool:
        """Whether who has not acknowledged is late alone: half of those asked have, in half of the time or less.

        When most are waited for, it is no single one that is late, and all have until the deadline.
        """
        if 2 * len(self.acked) < len(self.asked):
            return False
        return now - self.since > max(LATE_ALONE_S, 2 * sum(self.took) / len(self.took))
