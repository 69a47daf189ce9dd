"""What the cycle's state machine keeps: the shape of a run, frozen yields, a published state, the ledger line.

Plain containers with the few questions that concern them alone; every decision is in `cycle.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mpca.driver.roster import Agent
from mpca.wire.orders import Frozen

__all__ = ["FrozenSet", "Ledger", "Ready", "RunShape", "Sum"]


@dataclass(frozen=True, slots=True)
class RunShape:
    """What does not change during a run."""

    run: str
    epoch: int  # attempt of the driver
    shards: int
    phases: int
    exchanges: bool  # False: the method reads models but never broadcasts (single)
    min_agents: int
    deadline_s: float  # of a cycle
    start_timeout_s: float
    install_first: bool = False  # a shard is frozen only after its newest joint state was handed over (delay-corrected)
    first_cycle: int = 0
    resumed: bool = False  # the joint model comes from a backup; x_0 is not read
    numbers: Callable[[int], tuple[float, float, float]] = lambda version: (0.0, 1.0, 0.0)  # alpha, beta, gamma


@dataclass(slots=True)
class FrozenSet:
    """The yields of one (cycle, shard) that executors hold for us."""

    cycle: int
    frozen: dict[int, Frozen] = field(default_factory=dict)
    executor: dict[int, str] = field(default_factory=dict)  # of each frozen agent
    weights: dict[str, float] = field(default_factory=dict)  # of each executor's part
    left_out: dict[int, str] = field(default_factory=dict)

    def spoilt(self, agents: list[Agent]) -> bool:
        """Whether one of them handed over what is not finite, and is well again."""
        held = ((agent, self.frozen.get(agent.index)) for agent in agents)
        return any(one is not None and not one.finite and one.incarnation == agent.incarnation for agent, one in held)

    def contributors(self) -> list[int]:
        return [agent for agent, one in self.frozen.items() if one.finite and self.executor[agent] in self.weights]


@dataclass(frozen=True, slots=True)
class Sum:
    order: int
    cycle: int
    shard: int
    length: int


@dataclass(slots=True)
class Ready:
    """A published joint state on its way to the agents."""

    cycle: int
    shard: int
    broadcast: int
    version: int
    length: int
    asked: set[tuple[int, int]] = field(default_factory=set)  # (agent, incarnation) told to download it
    acked: set[tuple[int, int]] = field(default_factory=set)  # ... that have it


@dataclass(slots=True)
class Ledger:
    """What the record of the current cycle will say."""

    contributors: dict[int, dict[str, int]] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=lambda: {"driver_in": 0, "driver_out": 0, "in": 0, "out": 0})
    submissions: int = 0
    pauses: dict[int, list[float]] = field(default_factory=dict)

    def stretch(self, stage: str, shard: int, start: float, end: float) -> None:
        known = self.stages.get(stage)
        if known is None:
            self.stages[stage] = {"shard": shard, "start": start, "end": end}
        else:
            known["start"] = min(known["start"], start)
            known["end"] = max(known["end"], end)
