"""The rules of the comparison, as pure functions of curves. A method's numbers are chosen on seeds that are not reported.

* **Targets** are what `single` reached, and nobody else.
* A **trial** is one value of everything that is tuned, and a learning rate. Every method has the same number of trials, in the
  first grid and in each round behind it.
* The **score** of a trial is how often and how soon its runs reached the targets.
* An optimum at an **edge** of what was tried extends it there, in the next round. In that round the methods whose optimum lies
  inside try as many rates around theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

__all__ = ["MORE", "Curve", "Score", "Trial", "best", "edges", "extension", "first_grid", "refinement", "score", "targets"]

#: Trials of a method in a round behind the first grid.
MORE = 2
_STEP = 0.005  # targets are rounded up to a half per cent
_EDGE_FACTOR = 2.0  # of rates beyond an edge, if there is one rate alone


@dataclass(frozen=True)
class Curve:
    """One run: errors of the joint model over time. Times are updates of one agent that computes all the time (C)."""

    times: Sequence[float]
    updates: Sequence[float]
    """That an agent has made, on average."""
    cycles: Sequence[int]
    errors: Sequence[float]

    def reached(self, target: float) -> int | None:
        """Index of the first evaluation at or below a target; None: none is."""
        return next((index for index, error in enumerate(self.errors) if error <= target), None)

    def time_to(self, target: float) -> float:
        """Time of that evaluation; infinite: not reached."""
        index = self.reached(target)
        return math.inf if index is None else self.times[index]


@dataclass(frozen=True, order=True)
class Trial:
    """What a method is tried with."""

    setting: tuple[tuple[str, Any], ...]
    """Name and value of what is tuned."""
    rate: float

    @property
    def knobs(self) -> dict[str, Any]:
        """`setting` as a map."""
        return dict(self.setting)


#: Smaller is better: targets missed by runs; mean logarithm of the times, a missed one counting as the end; mean last error.
Score = tuple[int, float, float]


def targets(single: Mapping[float, Sequence[Curve]], budget: float, shares: Sequence[float]) -> tuple[float, ...]:
    """The errors that `single` reached after these shares of its time, at its best rate for each, rounded up; largest first.

    Args:
        single: curves of its tuning seeds in its first grid, by rate.
        budget: its time.
        shares: of that time.

    Example:
        >>> curve = Curve((10, 20), (10, 20), (1, 2), (0.31, 0.12))
        >>> targets({0.1: [curve]}, 20, (0.5, 1.0))
        (0.31, 0.12)
    """
    found = []
    for share in shares:
        reached = min(median(_least(curve, share * budget) for curve in curves) for curves in single.values())
        found.append(round(math.ceil(round(reached / _STEP, 6)) * _STEP, 6))
    return tuple(sorted(set(found), reverse=True))


def _least(curve: Curve, until: float) -> float:
    seen = [error for time, error in zip(curve.times, curve.errors, strict=True) if time <= until * (1 + 1e-9)]
    return min(seen, default=1.0)


def score(curves: Sequence[Curve], wanted: Sequence[float]) -> Score:
    """How good a trial is, by its runs on tuning seeds."""
    times = [(curve.time_to(target), curve.times[-1]) for curve in curves for target in wanted]
    missed = sum(math.isinf(time) for time, _ in times)
    mean = fmean(math.log(max(min(time, end), 1e-9)) for time, end in times)
    return missed, mean, fmean(curve.errors[-1] for curve in curves)


def first_grid(settings: Sequence[Mapping[str, Any]], low: float, high: float, trials: int) -> list[Trial]:
    """The same number of trials for every method: the fewer settings it has, the finer are its rates.

    Example:
        >>> [one.rate for one in first_grid([{}], 0.001, 0.004, 3)]
        [0.001, 0.002, 0.004]
    """
    count = trials // len(settings)
    rates = [_round(low * (high / low) ** (number / (count - 1))) for number in range(count)]
    return [Trial(tuple(sorted(one.items())), rate) for one in settings for rate in rates]


def best(scores: Mapping[Trial, Score]) -> Trial:
    """The trial with the best score; of equal ones the first in the order of trials."""
    return min(scores, key=lambda trial: (scores[trial], _order(trial)))


def edges(scores: Mapping[Trial, Score]) -> list[str]:
    """What of the best trial lies at the edge of what was tried: "rate", or names of what is tuned."""
    found = best(scores)
    rates = _rates_at(scores, found)
    names = ["rate"] if found.rate in (rates[0], rates[-1]) else []
    for name, value in found.setting:
        values = _values_of(scores, found, name)
        if len(values) > 1 and value in (values[0], values[-1]):
            names.append(name)
    return names


def extension(
    scores: Mapping[Trial, Score], takes: Callable[[Mapping[str, Any]], bool] = lambda knobs: True
) -> list[Trial] | None:
    """`MORE` trials beyond the edge at which the optimum lies; None: it lies inside, or what is beyond is refused.

    Args:
        scores: of all that was tried.
        takes: says whether the method takes these values of what is tuned.
    """
    found = best(scores)
    rates = _rates_at(scores, found)
    if found.rate in (rates[0], rates[-1]):
        low = found.rate == rates[0]
        factor = _EDGE_FACTOR if len(rates) == 1 else (rates[1] / rates[0] if low else rates[-1] / rates[-2])
        factor = 1 / factor if low else factor
        return [Trial(found.setting, _round(found.rate * factor**number)) for number in range(1, MORE + 1)]
    for name, value in found.setting:
        values = _values_of(scores, found, name)
        if len(values) < 2 or value not in (values[0], values[-1]):
            continue
        beyond = _beyond(value, values[1] if value == values[0] else values[-2])
        setting = tuple((key, beyond if key == name else one) for key, one in found.setting)
        if beyond is None or not takes(dict(setting)):
            continue
        return [Trial(setting, rate) for rate in (found.rate, _better_neighbour(scores, found))]
    return None


def refinement(scores: Mapping[Trial, Score]) -> list[Trial]:
    """As many rates around an optimum that lies inside: half-way to its neighbours."""
    found = best(scores)
    rates = _rates_at(scores, found)
    around = [pair for pair in pairwise(rates) if found.rate in pair]
    return [Trial(found.setting, _round(math.sqrt(low * high))) for low, high in around]


def _better_neighbour(scores: Mapping[Trial, Score], found: Trial) -> float:
    rates = _rates_at(scores, found)
    at = rates.index(found.rate)
    beside = {rate: scores[Trial(found.setting, rate)] for rate in (rates[at - 1], rates[at + 1])}
    return min(beside, key=lambda rate: (beside[rate], rate))


def _beyond(value: Any, neighbour: Any) -> Any:
    """One step further, by the ratio to the neighbour; None: what has no order has no beyond."""
    if not (_number(value) and _number(neighbour)) or value <= 0 or neighbour <= 0:
        return None
    further = value * value / neighbour
    if isinstance(value, int) and isinstance(neighbour, int):
        whole = round(further)
        return whole if whole > 0 and whole != value else None
    return _round(further)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rates_at(scores: Mapping[Trial, Score], found: Trial) -> list[float]:
    return sorted(one.rate for one in scores if one.setting == found.setting)


def _values_of(scores: Mapping[Trial, Score], found: Trial, name: str) -> list[Any]:
    """Numbers that were tried of `name` while the rest was as in `found`, sorted; fewer than two: it has no edge."""
    rest = [pair for pair in found.setting if pair[0] != name]
    alike = {dict(one.setting)[name] for one in scores if [pair for pair in one.setting if pair[0] != name] == rest}
    return sorted(alike) if all(_number(one) for one in alike) else []


def _order(trial: Trial) -> tuple[str, float]:
    return repr(trial.setting), trial.rate


def _round(value: float) -> float:
    return float(f"{value:.5g}")
