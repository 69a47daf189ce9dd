"""Curves without a simulation: how fast a fake run learns is a formula of its unit."""

from __future__ import annotations

import math
from collections.abc import Callable

from mpca.sim.compare.fairness import Curve
from mpca.sim.compare.plan import Plan, Progress
from mpca.sim.compare.unit import Unit

__all__ = ["Learn", "curve", "fake", "finish"]

#: Unit, rate and seed -> how fast a run learns.
Learn = Callable[[Unit, float, int], float]


def curve(unit: Unit, speed: float) -> Curve:
    """Errors fall exponentially with time."""
    times = [unit.updates * number / unit.points for number in range(unit.points + 1)]
    return Curve(times, times, [int(time) for time in times], [math.exp(-speed * time) for time in times])


def peak(rate: float, at: float) -> float:
    """How well a rate does, when the best one is `at`: 1 there, half of it a factor of 4 away."""
    return float(0.5 ** (math.log(rate / at, 4) ** 2))


def fake(learn: Learn) -> Callable[[Unit], list[Curve]]:
    """Stands for `simulate_unit`."""
    return lambda unit: [curve(unit, learn(unit, rate, seed)) for rate, seed in unit.runs]


def finish(plan: Plan, simulate: Callable[[Unit], list[Curve]], one_by_one: bool = False) -> tuple[Progress, list[Unit]]:
    """Do all that is missing, or the newest of it alone, until nothing is; gives all units too."""
    done: dict[str, list[Curve]] = {}
    units: list[Unit] = []
    while missing := list((progress := plan.look(done)).missing.values()):
        some = missing[-1:] if one_by_one else missing
        done.update((unit.key, simulate(unit)) for unit in some)
        units += some
    return progress, units
