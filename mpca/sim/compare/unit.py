"""One unit of work: one simulation, in which rates and seeds are stacked. Equal units give equal curves in any process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any

from mpca import methods, models
from mpca.sim.compare.fairness import Curve
from mpca.sim.compare.settings import setting_of
from mpca.sim.costs import Costs
from mpca.sim.run import Scenario
from mpca.sim.science.lesson import TASKS, learn
from mpca.sim.table_costs import TableCosts
from mpca.sim.transports import COORDINATED

__all__ = ["Unit", "Units", "simulate_unit"]

_NEVER_S = 1e12
_READ = 0.1  # updates that it takes to read an agent that is alone; with 0 it would be read again and again in no time


@dataclass(frozen=True)
class Unit:
    """All that the curves depend on."""

    method: Mapping[str, Any]
    """As a plain map, `Method.to_dict`."""
    agents: int
    ratio: str
    step_s: float
    bandwidth: str
    transport: str
    spread: float
    contested: int
    """Agents at half their speed."""
    task: str
    optimizer: str
    batch: int
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    updates: int
    """How long it trains: the time of so many updates of one agent."""
    points: int
    tested: int
    schedule: int
    """Seed of the schedule of events."""
    codec: str = "none"
    """As `Scenario.codec`; no file of a comparison has one."""

    @cached_property
    def key(self) -> str:
        """Names the unit by its content."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:20]

    @property
    def runs(self) -> list[tuple[float, int]]:
        """Rate and seed of each curve, in their order."""
        return [(rate, seed) for rate in self.rates for seed in self.seeds]


#: What units have brought, by key.
Units = Mapping[str, list[Curve]]


def simulate_unit(unit: Unit) -> list[Curve]:
    """The curves of a unit, in the order of `Unit.runs`; runs share a schedule of events, if it does not depend on numbers.

    Raises:
        Violation: an invariant of the engine does not hold.
    """
    at = setting_of(unit.ratio, unit.agents, unit.step_s, unit.bandwidth)
    method, step_s = methods.from_dict(unit.method), at.step_s
    if method.agent_side.asks_at_loss and len(unit.runs) > 1:  # no two runs have the same schedule
        alone = (replace(unit, rates=(rate,), seeds=(seed,)) for rate, seed in unit.runs)
        return [curve for one in alone for curve in simulate_unit(one)]
    if method.exchanges:
        elements = _elements(TASKS[unit.task].model)
        costs: Costs = TableCosts.of(at, COORDINATED[unit.transport], method.phases, method.shards, elements, unit.spread)
    else:  # an agent alone has its model at hand: evaluated is what it is now, and not what a transport has brought of it
        costs = Costs(step_s, unit.spread, dispatch_s=_READ * step_s, latency_s=0.0, copy_s=0.0, element_bytes=0.0)
    costs = replace(costs, contested=unit.contested)
    task = {
        "rates": unit.rates,
        "seeds": unit.seeds,
        "optimizer": unit.optimizer,
        "batch": unit.batch,
        "tested": unit.tested,
    }
    scenario = Scenario(
        agents=unit.agents,
        min_agents=unit.agents,
        method=unit.method,
        cycles=1 << 60,
        deadline_s=_NEVER_S,
        start_timeout_s=_NEVER_S,
        finish_s=_NEVER_S,
        patience_s=_NEVER_S,
        trainer=unit.task,
        task=task,
        max_time_s=unit.updates * step_s,
        costs=costs,
        codec=unit.codec,
    )
    every_s = unit.updates * step_s / unit.points
    _, points = learn(scenario, unit.schedule, every_s)
    times = [point.t / step_s for point in points]
    updates, cycles = [point.updates for point in points], [point.cycle for point in points]
    errors = zip(*(point.errors for point in points), strict=True)
    return [Curve(times, updates, cycles, list(one)) for one in errors]


@lru_cache
def _elements(model: str) -> int:
    """Numbers that agents exchange of a model."""
    return sum(one.numel() for one in models.create(model).state_dict().values() if one.is_floating_point())
