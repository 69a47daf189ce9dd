"""Numbers for trackers, from records: the same records give the same numbers. No clock, no files.

======================  =====  ====================================================================
name                    step   value
======================  =====  ====================================================================
evaluation/NAME         cycle  what the evaluation of the joint model returned
agents/NAME             steps  mean over the living agents of what they logged
agent-N/NAME            steps  what agent N logged
agents/steps_per_s      steps  optimiser updates of all agents that log; samples_per_s: where they are counted
run/tau                 cycle  mean over the contributors, or of the agent that asked
run/agents              cycle  agents alive
bytes/KEY               cycle  as in the record
======================  =====  ====================================================================

"cycle" is that of the record, or the newest; "steps" are optimiser updates of agent N over its incarnations, and for all agents
their mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from mpca.records import AgentRecord, CycleRecord, EvaluationRecord, ExchangeRecord, MetricsRecord, Record, RunRecord

__all__ = ["Scalar", "Scalars", "axis"]

_GONE = ("lost", "finished")


@dataclass(frozen=True, slots=True)
class Scalar:
    """One number."""

    name: str
    value: float  # finite
    step: int
    t: float  # seconds since the run began


def axis(name: str) -> str:
    """What the steps of a scalar count: "cycle" or "steps"."""
    return "steps" if name.startswith("agent") else "cycle"


@dataclass(slots=True)
class _Agent:
    """What one agent logged."""

    incarnation: int = -1
    before: int = 0  # updates of earlier incarnations
    steps: int = 0  # of all incarnations
    t: float = 0.0  # of its newest record
    samples: int | None = None  # of this incarnation
    rates: dict[str, float] = field(default_factory=dict)  # a second, between its last two records
    metrics: dict[str, float] = field(default_factory=dict)  # newest by name

    def heard(self, one: MetricsRecord) -> None:
        if one.incarnation != self.incarnation:
            self.incarnation, self.before, self.rates, self.samples = one.incarnation, self.steps, {}, None
        elif one.t > self.t:
            counted = {"steps_per_s": self.before + one.steps - self.steps}
            if one.samples is not None and self.samples is not None:
                counted["samples_per_s"] = one.samples - self.samples
            self.rates = {name: count / (one.t - self.t) for name, count in counted.items()}
        self.steps, self.t, self.samples = self.before + one.steps, one.t, one.samples
        self.metrics.update(_finite(one.metrics))


class Scalars:
    """Of one run; it is given every record once, in their order, those of earlier attempts too."""

    def __init__(self) -> None:
        self._alive: set[int] = set()
        self._agents: dict[int, _Agent] = {}
        self._since_mean: set[int] = set()  # agents that logged since the last mean
        self._cycle = 0

    def of(self, record: Record) -> list[Scalar]:
        """The numbers of the next record."""
        match record:
            case RunRecord():  # the agents of an earlier attempt are gone, and processes are counted anew
                self._alive.clear()
                self._since_mean.clear()
                for one in self._agents.values():
                    one.incarnation = -1
            case AgentRecord(event="silent"):
                pass
            case ExchangeRecord() if record.reason:  # nothing was taken in, and the next exchange has the same number
                pass
            case AgentRecord():
                (self._alive.discard if record.event in _GONE else self._alive.add)(record.index)
                return self._scalars("run", {"agents": len(self._alive)}, record.t, self._cycle)
            case CycleRecord() | ExchangeRecord():
                return self._exchanged(record)
            case EvaluationRecord():
                return self._scalars(
                    "evaluation", {"error": record.error, "loss": record.loss, **record.metrics}, record.t, record.cycle
                )
            case MetricsRecord():
                return self._logged(record)
            case _:
                pass
        return []

    def rest(self) -> list[Scalar]:
        """At the end: the means since the last ones."""
        return self._means(max(self._agents[one].t for one in self._since_mean)) if self._since_mean else []

    def _exchanged(self, record: CycleRecord | ExchangeRecord) -> list[Scalar]:
        self._cycle = record.cycle
        taus = [record.tau] if isinstance(record, ExchangeRecord) else [one["tau"] for one in record.contributors.values()]
        values = {"tau": fmean(taus)} if taus else {}
        return [
            *self._scalars("run", values, record.t, record.cycle),
            *self._scalars("bytes", record.bytes, record.t, record.cycle),
        ]

    def _logged(self, record: MetricsRecord) -> list[Scalar]:
        agent = self._agents.setdefault(record.agent, _Agent())
        if record.incarnation < agent.incarnation:  # it was replaced: what it still says would count its updates once more
            return []
        # a mean when somebody logs again: as often as one agent does
        means = self._means(record.t) if record.agent in self._since_mean else []
        agent.heard(record)
        self._since_mean.add(record.agent)
        return [*means, *self._scalars(f"agent-{record.agent}", record.metrics, record.t, agent.steps)]

    def _means(self, t: float) -> list[Scalar]:
        """Not by `fmean`, which raises where a sum is beyond all floats."""
        self._since_mean.clear()
        living = [one for number, one in self._agents.items() if number in self._alive] or list(self._agents.values())
        step = round(fmean(one.steps for one in living))
        means = {name: sum(values) / len(values) for name, values in _by_name(one.metrics for one in living).items()}
        rates = {name: sum(values) for name, values in _by_name(one.rates for one in living).items()}
        return self._scalars("agents", means | rates, t, step)

    @staticmethod
    def _scalars(group: str, values: Mapping[str, float | None], t: float, step: int) -> list[Scalar]:
        return [Scalar(f"{group}/{name}", float(value), step, t) for name, value in _finite(values).items()]


def _finite(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None and math.isfinite(value)}


def _by_name(maps: Iterable[Mapping[str, float]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for one in maps:
        for name, value in one.items():
            found.setdefault(name, []).append(value)
    return found
