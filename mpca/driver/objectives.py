"""What a run is to reach, and what is done beside training: the objectives of section 5.3, as plain values.

Training never waits for them: the runner looks at them between two events, the evaluator is a process of its own, and a thread
of its own writes backups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mpca.driver.events import StopRequested
from mpca.errors import ConfigError
from mpca.units import parse_duration

__all__ = ["DumpModel", "Evaluate", "Goals", "MaxCycles", "MaxTime", "Objective", "TargetError", "judge"]

#: Ends that an objective or the train functions bring about, each with what the user can do when such a run committed nothing.
_MET = {
    "max_time": "raise objectives.max_time",
    "max_cycles": "raise objectives.max_cycles",
    "reached": "train for longer, or on more data",
}


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


@dataclass(frozen=True, slots=True)
class TargetError(Objective):
    """The run ends when an evaluation of the joint model is at or below this error (share of wrong answers)."""

    error: float

    def __post_init__(self) -> None:
        if not 0 < self.error < 1:
            raise ConfigError(f"TargetError: error must lie between 0 and 1, got {self.error}")


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

    `state_dict` maps the model's own names to numpy arrays: the joint model with its buffers, never extrapolated.
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
    """The objectives of one run, one of each kind at most."""

    target_error: float = 0.0  # 0: none
    max_time: float | None = None  # seconds
    max_cycles: int | None = None
    evaluate: Evaluate | None = None
    dump: DumpModel | None = None

    @classmethod
    def of(cls, objectives: Iterable[Objective]) -> Goals:
        """Sort objectives by kind.

        Raises:
            ConfigError: two of a kind, something that is no objective, or a target that nothing evaluates.
        """
        by_kind: dict[type, Objective] = {}
        for one in objectives:
            if not isinstance(one, Objective):
                raise ConfigError(f"not an objective: {one!r}; use TargetError, MaxTime, MaxCycles, Evaluate or DumpModel")
            if type(one) in by_kind:
                raise ConfigError(f"two objectives of one kind: {by_kind[type(one)]} and {one}; leave one out")
            by_kind[type(one)] = one
        target, time, cycles = by_kind.get(TargetError), by_kind.get(MaxTime), by_kind.get(MaxCycles)
        evaluate, dump = by_kind.get(Evaluate), by_kind.get(DumpModel)
        if target is not None and evaluate is None:
            raise ConfigError("TargetError needs an evaluation: add Evaluate(function) to the objectives")
        return cls(
            target.error if isinstance(target, TargetError) else 0.0,
            float(time.seconds) if isinstance(time, MaxTime) else None,
            cycles.cycles if isinstance(cycles, MaxCycles) else None,
            evaluate if isinstance(evaluate, Evaluate) else None,
            dump if isinstance(dump, DumpModel) else None,
        )

    def reached(self, error: float | None, trained_s: float | None) -> tuple[str, str] | None:
        """Whether the run should end. `max_cycles` is not looked at here: the machine begins no cycle after the last.

        Args:
            error: newest evaluation of the joint model, if there was one.
            trained_s: seconds since training began (`Machine.began`), over all attempts.

        Returns:
            (status, reason); None: the run goes on.
        """
        if self.target_error and error is not None and error <= self.target_error:
            return "reached", f"error {error:.4f} is at or below the target of {self.target_error:.4f}"
        if self.max_time is not None and trained_s is not None and trained_s >= self.max_time:
            return "max_time", f"{self.max_time:.0f} s of training"
        return None


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
