"""A shard of the joint model on its way from the sum of its contributions to the agents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mpca.timeouts import LATE_ALONE_S
from mpca.wire.agent_ref import AgentId

__all__ = ["PublishedShard", "Sum"]


@dataclass(frozen=True, slots=True)
class Sum:
    """A weighted sum that an order made and the shell has not taken yet. `length` is in bytes."""

    order: int
    cycle: int
    shard: int
    length: int


@dataclass(slots=True)
class PublishedShard:
    """A published joint state on its way to the agents. `length` is in bytes."""

    cycle: int
    shard: int
    broadcast: int
    version: int
    length: int
    alpha: float = 0.0  # of the pull towards it
    asked: set[AgentId] = field(default_factory=set)  # agents that were told to download it
    acked: set[AgentId] = field(default_factory=set)  # those of them that have it
    waiting: set[AgentId] = field(default_factory=set)  # the others
    since: float = 0.0  # seconds of the machine: the newest order that asks for it
    took: list[float] = field(default_factory=list)  # seconds until each acknowledgement

    def ask(self, keys: Iterable[AgentId], now: float) -> None:
        """Agents are told to download it, at `now` (seconds of the machine); none of them has it."""
        self.since = now
        self.asked.update(keys)
        self.waiting = self.asked - self.acked

    def acknowledged(self, key: AgentId, now: float) -> None:
        """An agent that was asked has it, at `now` (seconds of the machine)."""
        if key in self.asked and key not in self.acked:
            self.acked.add(key)
            self.waiting.discard(key)
            self.took.append(now - self.since)

    def overdue(self, now: float) -> bool:
        """Whether an agent that has not acknowledged is late alone.

        That is so when half of the agents that were asked have acknowledged, and twice their mean time (at least
        `LATE_ALONE_S`) is over. While most agents are still waited for, no single one is late, and all have until the
        deadline.

        Args:
            now: seconds of the machine.
        """
        if 2 * len(self.acked) < len(self.asked):
            return False
        return now - self.since > max(LATE_ALONE_S, 2 * sum(self.took) / len(self.took))
