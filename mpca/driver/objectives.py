"""What a run is to reach, and what is done beside training: the objectives of section 5.3, as plain values.

Training never waits for them: the runner looks at them between two events, the evaluator is a process of its own, and a thread
of its own writes backups.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from mpca.checks import refused, shown_of
from mpca.config.sections import ObjectivesConfig
from mpca.driver.events import StopRequested
from mpca.errors import ConfigError
from mpca.units import parse_duration

__all__ = [
    "Best",
    "DumpModel",
    "EarlyStopping",
    "Evaluate",
    "Goals",
    "KeepBest",
    "MaxCycles",
    "MaxTime",
    "Objective",
    "Target",
    "judge",
    "metric_goals",
]

#: Ends that an objective or the train functions bring about, each with what the user can do when such a run committed nothing.
_MET = {
    "max_time": "raise objectives.max_time",
    "max_cycles": "raise objectives.max_cycles",
    "early_stopping": "evaluate less often, or have more patience",
    "reached": "train for longer, or on more data",
}
#: Metrics of which it is known whether a smaller value is better, or a larger one.
_MODES = {"error": "min", "loss": "min", "perplexity": "min", "accuracy": "max"}
_WORDS = {"min": "smaller", "max": "larger"}
_KINDS = "Target, MaxTime, MaxCycles, Evaluate, EarlyStopping, KeepBest or DumpModel"


class Objective:
    """Base of all objectives."""

    __slots__ = ()


def _seconds(value: str | float, where: str) -> float:
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    if not 0 < seconds < math.inf:
        raise ConfigError(f"{where}: must be longer than 0 s, and not for ever, got {value!r}")
    return seconds


def _check_metric(where: str, metric: str) -> None:
    if not isinstance(metric, str) or metric != metric.strip() or not metric or "," in metric:
        raise ConfigError(
            f"{where}: a metric is the name of a number that the evaluation returns, without a comma, got {shown_of(metric)}"
        )


def _plain(number: Any) -> int | float | None:
    """As Python's own type, since numpy's numbers look different in text; None: it is no finite number."""
    if isinstance(number, bool) or not isinstance(number, Real):
        return None
    try:
        finite = math.isfinite(float(number))
    except OverflowError:  # a whole number beyond all floats
        finite = False
    if not finite:
        return None
    return int(number) if isinstance(number, Integral) else float(number)


def _mode(where: str, metric: str, mode: str | None) -> str:
    _check_metric(where, metric)
    found = mode or _MODES.get(metric)
    if found not in ("min", "max"):
        raise ConfigError(
            f'{where}: say whether a smaller {metric} is better, or a larger one: mode="min" or mode="max", '
            f"got {shown_of(mode)}"
        )
    return found


@dataclass(frozen=True, slots=True)
class Target(Objective):
    """The run ends when an evaluation of the joint model returns this number of the metric, or a better one.

    One bound: ``Target("accuracy", at_least=0.97)``, ``Target("perplexity", at_most=20)``. The metric "error" is the share of
    wrong answers, so ``Target("error", at_most=0.025)`` is 2.5 %. Of several targets the first that is reached ends the run.
    """

    metric: str
    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        _check_metric("Target", self.metric)
        if (self.at_least is None) == (self.at_most is None):
            raise ConfigError(f"Target({self.metric!r}): give one bound, at_least or at_most")
        name, plain = ("at_most", _plain(self.at_most)) if self.at_least is None else ("at_least", _plain(self.at_least))
        if plain is None:
            raise ConfigError(f"Target({self.metric!r}): the bound must be a finite number, got {shown_of(self.bound):.60}")
        object.__setattr__(self, name, plain)
        if self.metric == "error" and not (self.at_most is not None and 0 < self.at_most < 1):
            raise ConfigError(f'Target("error"): a share of wrong answers; at_most must lie between 0 and 1, got {self.bound}')

    @property
    def bound(self) -> float:
        """The one that was given."""
        return self.at_least if self.at_least is not None else self.at_most  # type: ignore[return-value]

    @property
    def mode(self) -> str:
        """Which values are better: "max" or "min"."""
        return "min" if self.at_least is None else "max"

    def __str__(self) -> str:
        return f"{self.metric} {'<=' if self.mode == 'min' else '>='} {self.bound!r}"

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read what `str` makes of a target.

        Raises:
            ConfigError: it is none.

        Example:
            >>> Target.parse("accuracy >= 0.97")
            Target(metric='accuracy', at_least=0.97, at_most=None)
        """
        found = re.fullmatch(r"(.+?)\s*([<>]=)\s*(\S+)", text)
        try:
            bound = float(found[3]) if found is not None else math.nan
        except ValueError:
            found = None
        if found is None:
            raise ConfigError(f'not a target: {text!r}; write it as "loss <= 0.1", or ">=" for the other side')
        return cls(found[1], **{"at_least" if found[2] == ">=" else "at_most": bound})

    def met(self, values: Mapping[str, float]) -> bool:
        """Whether an evaluation that returned these numbers reaches the target; a number that is NaN never does."""
        value = values.get(self.metric, math.nan)
        return value <= self.bound if self.mode == "min" else value >= self.bound


@dataclass(frozen=True, slots=True)
class EarlyStopping(Objective):
    """The run ends when so many evaluations in a row have not been better than the best before them.

    `mode` says which values are better, "min" or "max"; of "error", "loss", "perplexity" and "accuracy" that is known. The
    saved model is the last one; add `KeepBest` for the best. A resumed run begins to count anew.
    """

    metric: str
    patience: int = 10
    mode: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", _mode("EarlyStopping", self.metric, self.mode))
        if type(self.patience) is not int or self.patience < 1:
            raise ConfigError(f"EarlyStopping: patience is a number of evaluations, 1 or more, got {shown_of(self.patience)}")

    def __str__(self) -> str:
        return f"{self.mode} {self.metric}"


@dataclass(frozen=True, slots=True)
class KeepBest(Objective):
    """The result is the joint model whose evaluation was the best of this attempt, whatever ended the run.

    `mode` as for `EarlyStopping`. Backups are of the joint model as it is, the last one too: a run that is resumed goes on from
    the newest model, not from the best.
    """

    metric: str
    mode: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", _mode("KeepBest", self.metric, self.mode))

    def __str__(self) -> str:
        return f"{self.mode} {self.metric}"


class Best:
    """The best value so far of a metric, and how many evaluations have come since."""

    def __init__(self, goal: EarlyStopping | KeepBest) -> None:
        self.value: float | None = None
        self.since = 0
        self._metric, self._smaller = goal.metric, goal.mode == "min"

    def take(self, values: Mapping[str, float]) -> bool:
        """Whether the newest evaluation is better than all before. One without the metric does not count."""
        value = values.get(self._metric)
        if value is None:
            return False
        old = self.value
        better = math.isfinite(value) and (old is None or (value < old if self._smaller else value > old))
        self.value, self.since = (value, 0) if better else (old, self.since + 1)
        return better


@dataclass(frozen=True, slots=True)
class MaxTime(Objective):
    """The run ends this long after all agents of the start had taken their first update. The times of all attempts add up.

    When some agents have taken none within ``cluster.start_timeout``, the time counts from there.
    """

    seconds: str | float

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", _seconds(self.seconds, "MaxTime"))


@dataclass(frozen=True, slots=True)
class MaxCycles(Objective):
    """The run ends after this many cycles (jobs; 3 shards: 20 exchanges are 60 cycles).

    With a method whose agents ask by themselves: after this many exchanges of one agent.
    """

    cycles: int

    def __post_init__(self) -> None:
        if self.cycles < 1:
            raise ConfigError(f"MaxCycles: must be at least 1, got {self.cycles}")


@dataclass(frozen=True, slots=True)
class Evaluate(Objective):
    """`function(state_dict) -> {"error": ..., "loss": ...}`, which the evaluator process calls at most once in `every`.

    `state_dict` maps the model's own names to tensors: the joint model with its buffers, never extrapolated. The function may
    return any numbers by name: all are recorded and drawn, and each may be a goal. "error" is the share of wrong answers.
    """

    function: Callable[[dict[str, Any]], dict[str, float]]
    every: str | float = "2s"

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", _seconds(self.every, "Evaluate"))


@dataclass(frozen=True, slots=True)
class DumpModel(Objective):
    """Write a backup of the joint model to `path` every `interval`, and keep the newest `keep`. None: in the run folder."""

    path: str | None = None
    interval: str | float = "60s"
    keep: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "interval", _seconds(self.interval, "DumpModel"))
        if self.keep < 1:
            raise ConfigError(f"DumpModel: keep must be at least 1, got {self.keep}")


@dataclass(frozen=True, slots=True)
class Goals:
    """The objectives of one run, one of each kind at most, and a target for each metric.

    Raises:
        ConfigError: a goal that nothing evaluates, or goals that contradict each other.
    """

    targets: tuple[Target, ...] = ()
    max_time: float | None = None  # seconds
    max_cycles: int | None = None
    evaluate: Evaluate | None = None
    dump: DumpModel | None = None
    early_stopping: EarlyStopping | None = None
    keep_best: KeepBest | None = None

    def __post_init__(self) -> None:
        modes: dict[str, tuple[Any, Objective]] = {}
        for goal in self.by_metric:
            if self.evaluate is None:
                raise ConfigError(f"{type(goal).__name__} needs an evaluation: add Evaluate(function) to the objectives")
            mode, other = modes.setdefault(goal.metric, (goal.mode, goal))
            if isinstance(goal, Target) and isinstance(other, Target) and goal is not other:
                raise ConfigError(f"two targets for {goal.metric}: {other} and {goal}; leave one out")
            if mode != goal.mode:
                raise ConfigError(
                    f"goals contradict: for {type(other).__name__} a {_WORDS[mode]} {goal.metric} is better, for "
                    f"{type(goal).__name__} a {_WORDS[str(goal.mode)]} one"
                )

    @property
    def by_metric(self) -> list[Target | EarlyStopping | KeepBest]:
        """The goals that look at numbers of an evaluation."""
        others = (self.early_stopping, self.keep_best)
        return [*self.targets, *(one for one in others if one is not None)]

    @property
    def target_error(self) -> float:
        """The share of wrong answers that ends the run; 0: none."""
        return next((one.bound for one in self.targets if one.metric == "error"), 0.0)

    @classmethod
    def of(cls, objectives: Iterable[Objective]) -> Goals:
        """Sort objectives by kind.

        Raises:
            ConfigError: two of a kind, something that is no objective, or as `Goals`.
        """
        by_kind: dict[type, Any] = {}
        targets = []
        for one in objectives:
            if not isinstance(one, Objective):
                raise ConfigError(f"not an objective: {one!r}; use {_KINDS}")
            if isinstance(one, Target):
                targets.append(one)
                continue
            if type(one) in by_kind:
                raise ConfigError(f"two objectives of one kind: {by_kind[type(one)]} and {one}; leave one out")
            by_kind[type(one)] = one
        time, cycles = by_kind.get(MaxTime), by_kind.get(MaxCycles)
        return cls(
            tuple(targets),
            None if time is None else float(time.seconds),
            None if cycles is None else cycles.cycles,
            *(by_kind.get(kind) for kind in (Evaluate, DumpModel, EarlyStopping, KeepBest)),
        )

    def reached(self, values: Mapping[str, float] | None, best: Best | None, trained_s: float | None) -> tuple[str, str] | None:
        """Whether the run should end. `max_cycles` is not looked at here: the machine begins no cycle after the last.

        Args:
            values: what the newest evaluation of the joint model returned, if there was one.
            best: of the metric of `early_stopping`.
            trained_s: seconds since training began (`Machine.began`), over all attempts.

        Returns:
            (status, reason); None: the run goes on.
        """
        for target in self.targets:
            if values is not None and target.met(values):
                digits = ".4f" if target.metric == "error" else ".4g"
                side = "below" if target.mode == "min" else "above"
                value = f"{target.metric} {values[target.metric]:{digits}}"
                return "reached", f"{value} is at or {side} the target of {target.bound:{digits}}"
        stopping = self.early_stopping
        if stopping is not None and best is not None and best.since >= stopping.patience:
            was = "none was a number" if best.value is None else f"the best was {best.value:.4g}"
            return "early_stopping", f"no better {stopping.metric} in {best.since} evaluations; {was}"
        if self.max_time is not None and trained_s is not None and trained_s >= self.max_time:
            return "max_time", f"{self.max_time:.0f} s of training"
        return None


def metric_goals(config: ObjectivesConfig) -> dict[str, Any]:
    """The goals of a configuration that look at numbers of an evaluation, as arguments of `Goals`.

    Raises:
        ConfigError: a text is no goal.
    """
    targets = [Target("error", at_most=config.target_error)] if config.target_error else []
    targets += [Target.parse(one.strip()) for one in config.targets.split(",") if one.strip()]
    found: dict[str, Any] = {"targets": tuple(targets)}
    for key in ("early_stopping", "keep_best"):
        text = getattr(config, key).strip()
        if text:
            first, *rest = text.split(maxsplit=1)
            mode, metric = (first, "".join(rest)) if first in _WORDS else (None, text)
            if not metric or "," in metric or not (mode or metric in _MODES):
                name = "f1" if not metric or "," in metric else metric
                raise refused(f"objectives.{key}", text, f'write it as "max {name}" or "min {name}", with one metric')
            stops = key == "early_stopping"
            found[key] = EarlyStopping(metric, config.patience, mode) if stops else KeepBest(metric, mode)
    return found


def judge(asked: StopRequested, committed: bool, counts: str, in_flight: str) -> StopRequested:
    """How a run ends that was asked to end.

    Without a commit the agents trained apart, and the joint model is still x_0. Whatever limit was met, that is no success,
    and would be none the next time.

    Args:
        asked: what the run was to end as.
        committed: whether any cycle or exchange was, by this attempt or an earlier one.
        counts: "cycle" or "exchange": which of them the run has.
        in_flight: the order that was not answered yet when the run was asked to end; empty: none.

    Returns:
        `asked`, or a final failure.
    """
    if committed or asked.status not in _MET:
        return asked
    waited = f', while "{in_flight}" was not answered yet' if in_flight else ""
    why = f"no {counts} was committed, so there is no joint model: {asked.reason}{waited}; {_MET[asked.status]}"
    return StopRequested("failed", why, final=True)
