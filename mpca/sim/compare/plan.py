"""Which units a comparison needs, as a function of those that are done: the first grids, rounds behind them, reported runs.

Nothing here depends on the order in which units end, nor on how many processes there are. Units of equal content are one unit:
what runs alone is shared by all bandwidths.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mpca.errors import ConfigError
from mpca.sim.compare import fairness
from mpca.sim.compare.fairness import Curve, Score, Trial
from mpca.sim.compare.settings import ALONE, MOST_SEEDS, Conf, Entry, exchange_of
from mpca.sim.compare.unit import Unit, Units

__all__ = ["Chosen", "Plan", "Progress"]


@dataclass(frozen=True)
class Chosen:
    """One method under one condition: what was chosen on tuning seeds, and the curves of other seeds."""

    entry: Entry
    agents: int
    ratio: str
    trial: Trial
    trials: int
    edges: tuple[str, ...]
    """Of what is chosen, what still lies at the edge of what was tried."""
    unit: Unit
    curves: list[Curve]


@dataclass
class Progress:
    """What is known so far."""

    known: dict[str, Unit] = field(default_factory=dict)
    """All units that are needed, as far as can be said."""
    missing: dict[str, Unit] = field(default_factory=dict)
    """Of these, the ones that can be simulated now."""
    later: int = 0
    """Units of which only the number is known."""
    targets: tuple[float, ...] = ()
    """Empty: `single` is not done."""
    chosen: list[Chosen] = field(default_factory=list)


class Plan:
    """The units of a comparison.

    Args:
        conf: the file.
    """

    def __init__(self, conf: Conf) -> None:
        self.conf, self.shared = conf, conf.shared
        first = 2 * MOST_SEEDS * self.shared.seed
        self.reported = tuple(range(first, first + self.shared.seeds))
        first += MOST_SEEDS
        self.tuning = tuple(range(first, first + self.shared.tuning_seeds))

    @property
    def conditions(self) -> list[tuple[int, str]]:
        """K and b/C."""
        return [(agents, ratio) for agents in self.shared.agents for ratio in self.shared.ratios]

    def look(self, done: Units) -> Progress:
        """What is known when these units are done."""
        progress = Progress()
        first = self._first(self.conf.reference, *self.conditions[0])
        if (curves := self._trials(self.conf.reference, *self.conditions[0], first, done, progress)) is not None:
            by_rate = {trial.rate: found for trial, found in curves.items()}
            shares = self.shared.target_shares
            progress.targets = fairness.targets(by_rate, self.shared.single_updates, shares)
        for agents, ratio in self.conditions:
            self._condition(agents, ratio, done, progress)
        return progress

    def _condition(self, agents: int, ratio: str, done: Units, progress: Progress) -> None:
        """Rounds are in step: all methods of a condition have the same number of trials."""
        entries = self.conf.entries
        grids = {entry.label: self._first(entry, agents, ratio) for entry in entries}
        scores: dict[str, dict[Trial, Score]] = {entry.label: {} for entry in entries}
        for number in range(self.shared.rounds + 1):
            asked = [self._trials(entry, agents, ratio, grids[entry.label], done, progress) for entry in entries]
            if not progress.targets or any(found is None for found in asked):
                progress.later += len(entries)
                return
            for entry, found in zip(entries, asked, strict=True):
                assert found is not None
                scores[entry.label] |= {trial: fairness.score(some, progress.targets) for trial, some in found.items()}
            beyond = {one.label: fairness.extension(scores[one.label], partial(_takes, one)) for one in entries}
            if not any(beyond.values()) or number == self.shared.rounds:
                break
            grids = {label: more or fairness.refinement(scores[label]) for label, more in beyond.items()}
        for entry in entries:
            tried = scores[entry.label]
            trial = fairness.best(tried)
            unit = self._unit(entry, agents, ratio, trial.knobs, (trial.rate,), self.reported)
            if (curves := self._ask(unit, done, progress)) is not None:
                edges = tuple(fairness.edges(tried)) if beyond[entry.label] else ()
                progress.chosen.append(Chosen(entry, agents, ratio, trial, len(tried), edges, unit, curves))

    def _first(self, entry: Entry, agents: int, ratio: str) -> list[Trial]:
        low, high = entry.rates or self.shared.rates
        return fairness.first_grid(entry.grid(exchange_of(self.shared, agents, ratio)), low, high, self.shared.trials)

    def _trials(
        self, entry: Entry, agents: int, ratio: str, trials: Sequence[Trial], done: Units, progress: Progress
    ) -> dict[Trial, list[Curve]] | None:
        """Curves of trials on tuning seeds; None: not all of them are done. Trials of one setting are one unit."""
        rates: Mapping[tuple[tuple[str, Any], ...], set[float]] = defaultdict(set)
        for trial in trials:
            rates[trial.setting].add(trial.rate)
        found: dict[Trial, list[Curve]] = {}
        complete = True
        for setting, some in rates.items():
            unit = self._unit(entry, agents, ratio, dict(setting), tuple(sorted(some)), self.tuning)
            curves = self._ask(unit, done, progress)
            complete = complete and curves is not None
            for (rate, _), curve in zip(unit.runs, curves or (), strict=curves is not None):
                found.setdefault(Trial(setting, rate), []).append(curve)
        return found if complete else None

    def _ask(self, unit: Unit, done: Units, progress: Progress) -> list[Curve] | None:
        progress.known[unit.key] = unit
        if unit.key in done:
            return done[unit.key]
        progress.missing[unit.key] = unit
        return None

    def _unit(
        self, entry: Entry, agents: int, ratio: str, knobs: Mapping[str, Any], rates: tuple[float, ...], seeds: tuple[int, ...]
    ) -> Unit:
        shared, alone, method = self.shared, entry.alone(agents), entry.method(knobs)
        updates = shared.single_updates if alone and not entry.k_batch else shared.updates
        return Unit(
            method=method.to_dict(),
            agents=method.agents(agents),
            ratio=ALONE if alone else ratio,
            step_s=shared.step,
            bandwidth=shared.bandwidth,
            transport=shared.transport,
            spread=shared.spread,
            contested=entry.contested,
            task=shared.task,
            optimizer=entry.optimizer or shared.optimizer,
            batch=shared.batch * (agents if entry.k_batch else 1),
            rates=rates,
            seeds=seeds,
            updates=updates,
            points=round(shared.points * updates / shared.updates) or 1,
            tested=shared.tested,
            schedule=seeds[0],
        )


def _takes(entry: Entry, knobs: Mapping[str, Any]) -> bool:
    """Whether the method takes these values of what is tuned."""
    try:
        entry.method(knobs)
    except ConfigError:
        return False
    return True
