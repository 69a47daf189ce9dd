"""What the cycle's state machine keeps: the shape of a run, frozen yields, a published state, the ledger line.

Plain containers with the few questions that concern them alone; every decision is in `cycle.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mpca.driver.roster import Agent
from mpca.methods.base import Method
from mpca.wire.orders import Answer, Freeze, Frozen, Late

__all__ = ["LATE_ALONE_S", "FrozenSet", "Ledger", "Ready", "RunShape", "Sum"]

#: No download is late before.
LATE_ALONE_S = 1.0


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
    waits_for_shard: bool = False  # a shard that is being downloaded is frozen only after its acknowledgements
    first_cycle: int = 0
    finish_s: float = 300.0  # for what train functions do behind their loop, after a stop
    norm_limit: float = 0.0  # of `norms.NormLimit`; 0: none
    resumed: bool = False  # the joint model comes from a backup; x_0 is not read
    data: dict[str, Any] = field(default_factory=dict)  # of that backup: where its attempt was in the data
    places: tuple[tuple[str, ...], ...] = ()  # hosts of each shard of the data; empty: not on HDFS
    numbers: Callable[[int], tuple[float, float]] = lambda version: (1.0, 0.0)  # beta, gamma of a version
    alpha_for: Callable[[float], float] = lambda tau: 0.0  # alpha that goes with a joint state, from its mean tau

    @classmethod
    def of(cls, method: Method, **rest: Any) -> RunShape:
        """The shape of a run of this method; `rest` are the fields that are not the method's."""
        return cls(
            shards=method.shards,
            phases=method.phases,
            exchanges=method.exchanges,
            # the answer is to be taken in at that very exchange: because the method says so, or since it belongs to the
            # snapshot before (delay-corrected)
            waits_for_shard=method.install == "exchange" or method.install_first,
            numbers=method.numbers,
            alpha_for=method.alpha_for,
            **rest,
        )


@dataclass(slots=True)
class FrozenSet:
    """The yields of one (cycle, shard) that executors hold for us."""

    cycle: int
    frozen: dict[int, Frozen] = field(default_factory=dict)
    executor: dict[int, str] = field(default_factory=dict)  # of each frozen agent
    weights: dict[str, float] = field(default_factory=dict)  # of each executor's part
    left_out: dict[int, str] = field(default_factory=dict)
    beyond: set[int] = field(default_factory=set)  # moved further than the norm limit allows

    @classmethod
    def of(cls, freeze: Freeze, answers: list[Answer], living: set[str]) -> tuple[FrozenSet, dict[tuple[int, int], Late]]:
        """What executors answered to a freeze, and by (agent, incarnation) why somebody is late.

        Parts of executors that are not among the `living` any more are known and have no weight.
        """
        kept, late = cls(freeze.cycle), {}
        wanted = {agent: incarnation for _, agent, incarnation in freeze.agents}
        for answer in answers:
            for one in answer.frozen:
                if wanted.get(one.agent) != one.incarnation:
                    continue  # fenced: not an incarnation that was asked
                kept.frozen[one.agent] = one
                kept.executor[one.agent] = answer.executor
                if not one.finite:
                    kept.left_out[one.agent] = "not finite"
            if answer.executor in living:
                kept.weights[answer.executor] = answer.weight
            for agent, why in answer.late.items():
                kept.left_out[agent] = why.text
                late[(agent, wanted.get(agent, -1))] = why
        for executor, agent, _ in freeze.agents:
            if agent not in kept.frozen:
                kept.left_out.setdefault(agent, f"executor {executor} lost")
        return kept, late

    def refuse(self, reasons: dict[int, str]) -> None:
        """What these agents handed over for this cycle must not enter. A part of theirs alone has no weight any more."""
        self.left_out.update(reasons)
        self.beyond |= reasons.keys() & self.frozen.keys()
        entering = {self.executor[agent] for agent in self.frozen if self.usable(agent)}
        for agent in self.beyond:
            if self.executor[agent] not in entering:
                self.weights.pop(self.executor[agent], None)

    def usable(self, agent: int) -> bool:
        return self.frozen[agent].finite and agent not in self.beyond

    def mixed(self) -> bool:
        """Whether a part holds what must not enter beside what may: it is to be made again, without."""
        return any(self.executor[agent] in self.weights for agent in self.beyond)

    def spoilt(self, agents: list[Agent]) -> bool:
        """Whether one of them handed over what cannot be used, and is well again."""
        held = ((agent, self.frozen.get(agent.index)) for agent in agents)
        return any(
            one is not None and not self.usable(agent.index) and one.incarnation == agent.incarnation for agent, one in held
        )

    def contributors(self) -> list[int]:
        return [agent for agent in self.frozen if self.usable(agent) and self.executor[agent] in self.weights]


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
    alpha: float = 0.0  # of the pull towards it
    asked: set[tuple[int, int]] = field(default_factory=set)  # (agent, incarnation) told to download it
    acked: set[tuple[int, int]] = field(default_factory=set)  # ... that have it
    since: float = 0.0  # machine time of the newest order that asks for it
    took: list[float] = field(default_factory=list)  # seconds until each acknowledgement

    def acknowledged(self, key: tuple[int, int], now: float) -> None:
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


@dataclass(slots=True)
class Ledger:
    """What the record of the current cycle will say."""

    contributors: dict[int, dict[str, int]] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=lambda: {"driver_in": 0, "driver_out": 0, "in": 0, "out": 0})
    submissions: int = 0
    pauses: dict[int, list[float]] = field(default_factory=dict)

    def line(self, cycle: int, shard: int, numbers: tuple[float, float, float]) -> dict[str, Any]:
        """Fields of `records.CycleRecord`; `numbers` are alpha, beta and gamma."""
        alpha, beta, gamma = numbers
        return {
            "cycle": cycle,
            "shard": shard,
            "contributors": self.contributors,
            "left_out": {a: why for a, why in sorted(self.left_out.items()) if a not in self.contributors},
            "alpha": alpha,
            "beta": beta,
            "gamma": gamma,
            "stages": self.stages,
            "bytes": self.bytes,
            "submissions": self.submissions,
            "pauses": dict(sorted(self.pauses.items())),
        }

    def mean_tau(self) -> float:
        """Of those whose updates count; 0 when nobody's do."""
        taus = [one["tau"] for one in self.contributors.values() if one["tau"] > 0]
        return sum(taus) / max(1, len(taus))

    def stretch(self, stage: str, shard: int, start: float, end: float) -> None:
        known = self.stages.get(stage)
        if known is None:
            self.stages[stage] = {"shard": shard, "start": start, "end": end}
        else:
            known["start"] = min(known["start"], start)
            known["end"] = max(known["end"], end)
