"""The snapshots of one shard that executors hold for a cycle: whose they are, their weights, and who was left out and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mpca.driver.agent_table import Agent
from mpca.driver.events import StopRequested
from mpca.wire.agent_ref import AgentId
from mpca.wire.orders import Answer, Freeze, Frozen, Late

__all__ = ["ShardSnapshots"]

#: Cycles in which it is the data, rather than a rate that is too high, that made parameters not finite.
_EARLY = 3
_FIRST = "it was so from the first steps on: look at the first batches for values that are not finite, and at the loss; else "


@dataclass(slots=True)
class ShardSnapshots:
    """The snapshots of one (cycle, shard) that executors hold for the driver."""

    cycle: int
    frozen: dict[int, Frozen] = field(default_factory=dict)
    executor: dict[int, str] = field(default_factory=dict)  # of each frozen agent
    weights: dict[str, float] = field(default_factory=dict)  # of each executor's part
    left_out: dict[int, str] = field(default_factory=dict)
    beyond: set[int] = field(default_factory=set)  # agents that moved further than the norm limit allows

    @classmethod
    def of(cls, freeze: Freeze, answers: list[Answer], living: set[str]) -> tuple[ShardSnapshots, dict[AgentId, Late]]:
        """Collect what executors answered to a freeze.

        Args:
            freeze: which agents were asked.
            answers: of the executors.
            living: executors that are still there. Parts of the others are known and have no weight.

        Returns:
            The snapshots, and why each late process is late.
        """
        kept, late = cls(freeze.cycle), {}
        wanted = {who.agent: who for who in freeze.agents}
        for answer in answers:
            for one in answer.frozen:
                if one.agent not in wanted or wanted[one.agent].id != one.id:
                    continue  # fenced: not an incarnation that was asked
                kept.frozen[one.agent] = one
                kept.executor[one.agent] = answer.executor
                if not one.finite:
                    kept.left_out[one.agent] = "not finite"
            if answer.executor in living:
                kept.weights[answer.executor] = answer.weight
            for agent, why in answer.late.items():
                kept.left_out[agent] = why.text
                late[wanted[agent].id if agent in wanted else AgentId(agent, -1)] = why
        for who in freeze.agents:
            if who.agent not in kept.frozen:
                kept.left_out.setdefault(who.agent, f"executor {who.executor} lost")
        return kept, late

    def refuse(self, reasons: dict[int, str]) -> None:
        """Keep what these agents handed over out of the sum. The part of an executor that holds nothing else loses its weight.

        Args:
            reasons: by agent, for the record.
        """
        self.left_out.update(reasons)
        self.beyond |= reasons.keys() & self.frozen.keys()
        entering = {self.executor[agent] for agent in self.frozen if self.usable(agent)}
        for agent in self.beyond:
            if self.executor[agent] not in entering:
                self.weights.pop(self.executor[agent], None)

    def usable(self, agent: int) -> bool:
        """Whether what this agent handed over may enter a sum."""
        return self.frozen[agent].finite and agent not in self.beyond

    def mixed(self) -> bool:
        """Whether a part holds what must not enter beside what may. Then the part is to be made again, without the former."""
        return any(self.executor[agent] in self.weights for agent in self.beyond)

    def any_unusable(self, agents: list[Agent]) -> bool:
        """Whether one of these agents handed over what cannot be used, and is well again."""
        held = ((agent, self.frozen.get(agent.index)) for agent in agents)
        return any(
            one is not None and not self.usable(agent.index) and one.incarnation == agent.incarnation for agent, one in held
        )

    def none_is_finite(self, living: Iterable[Agent]) -> bool:
        """Whether all living agents handed something over, and none of it is finite."""
        unusable = self.frozen and not any(one.finite for one in self.frozen.values())
        return bool(unusable) and all(agent.index in self.frozen for agent in living)

    def diverged(self) -> StopRequested:
        """How a run ends when `none_is_finite`."""
        why = (
            f"the parameters of all {len(self.frozen)} agents are not finite in cycle {self.cycle}: training diverged; "
            f"{_FIRST if self.cycle < _EARLY else ''}lower optimizer.lr or the method's gamma. "
            "What is saved is the last joint model, which is finite"
        )
        return StopRequested("failed", why, final=True)

    def contributors(self) -> list[int]:
        """Agents whose snapshots may enter the sum."""
        return [agent for agent in self.frozen if self.usable(agent) and self.executor[agent] in self.weights]
