"""Evaluations of the joint model: when one begins, what came of it, and the records of both.

A process beside the driver evaluates. What follows when that process ends is decided in `evaluating.py`; which joint model may
be evaluated is the runner's affair.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from mpca.driver.evaluating import EvaluatorDied, EvaluatorRule, FailRun, StartAgain, StopEvaluating
from mpca.driver.joint import JointModel
from mpca.driver.objectives import Best, Goals
from mpca.errors import ConfigError
from mpca.storage.layout import ModelLayout

__all__ = ["Evaluation", "Evaluations", "Evaluator", "Kept", "numbers_of"]

log = logging.getLogger("mpca.run")


class Evaluation(Protocol):
    """The result of one evaluation: of the joint model at `cycle`; it took `seconds`."""

    cycle: int
    values: Mapping[str, float]  # what the user's function returned
    seconds: float


class Kept(NamedTuple):
    """A joint model that was evaluated: its flat vector in pieces, and its layout, with the local tensors of that moment."""

    x: list[np.ndarray]
    layout: ModelLayout
    values: Mapping[str, float]


def numbers_of(record: Mapping[str, Any]) -> dict[str, float]:
    """All numbers of an evaluation's record, or of its entry in a history."""
    plain = {name: record[name] for name in ("error", "loss") if record[name] is not None}
    return {**plain, **record["metrics"]}


class Evaluator(Protocol):
    """A process beside the driver. No call blocks. When the process has died, the next `submit` starts it again."""

    @property
    def busy(self) -> bool:
        """Whether an evaluation goes on."""
        ...

    def submit(self, cycle: int, joint: JointModel) -> None:
        """Evaluate the joint model as it is now.

        Args:
            cycle: the cycle that goes on, or is next; the result names it.
            joint: the joint model; its numbers are copied.
        """
        ...

    def poll(self) -> list[Evaluation | EvaluatorDied]:
        """Take the results that have come, and the news that the process has died.

        Raises:
            AgentFailed: the user's function raised.
        """
        ...

    def close(self) -> None:
        """End the process; safe to call twice."""
        ...


class Evaluations:
    """See the module's text. Times are seconds of the runner's clock.

    Args:
        evaluator: None: nothing is evaluated.
        goals: of the run.
        write: writes a record of this kind with these fields, and gives its `t`.
    """

    def __init__(self, evaluator: Evaluator | None, goals: Goals, write: Callable[[str, dict[str, Any]], float]) -> None:
        self.evaluator = evaluator  # None also once evaluation has stopped
        #: {"kind": "evaluation", "t", ...}: the records.
        self.history: list[dict[str, Any]] = []
        #: What the newest evaluation returned, and, until the goals were looked at (`looked_at`), the model that it is of.
        self.values: Mapping[str, float] = {}
        self.newest: Kept | None = None
        #: The model that was the best by `KeepBest`.
        self.best_model: Kept | None = None
        #: Of the metric of `EarlyStopping`.
        self.best = None if goals.early_stopping is None else Best(goals.early_stopping)
        self._keeps = None if goals.keep_best is None else Best(goals.keep_best)
        self._goals = goals.by_metric
        self._names: dict[str, None] = {}  # of all numbers that an evaluation has returned
        self._asked: tuple[list[np.ndarray], ModelLayout] | None = None
        self._wanted, self._rule, self._write = goals.evaluate, EvaluatorRule(goals), write
        self._next = 0.0
        self._asked_cycle = -1
        self._cycle = 0  # cycles that the joint model of `values` had seen

    @property
    def judged(self) -> Mapping[str, float] | None:
        """`values`, but for those of x_0, which are shown, and reach no target."""
        return self.values if self._cycle else None

    @property
    def shown(self) -> list[tuple[str, float]]:
        """Numbers for a display, without the error: the goals', or the first one where there is neither goal nor error."""
        wanted = dict.fromkeys(one.metric for one in self._goals)
        if not wanted and "error" not in self.values:
            wanted = dict.fromkeys(list(self.values)[:1])
        return [(name, self.values[name]) for name in wanted if name in self.values and name != "error"]

    def due(self, now: float, cycle: int) -> bool:
        """Whether the joint model of this cycle should be evaluated now."""
        if self.evaluator is None or self._wanted is None:
            return False
        return now >= self._next and cycle > self._asked_cycle and not self.evaluator.busy

    def begin(self, now: float, cycle: int, joint: JointModel) -> None:
        """Evaluate the joint model, when it is due."""
        assert self._wanted is not None
        self._next = now + float(self._wanted.every)
        self._asked_cycle = cycle
        self.submit(cycle, joint)

    def submit(self, cycle: int, joint: JointModel) -> None:
        """Evaluate the joint model now."""
        assert self.evaluator is not None
        self._asked = joint.lend(), joint.layout
        self.evaluator.submit(cycle, joint)

    def collect(self, now: float) -> list[FailRun]:
        """Take what the evaluator has to say.

        Returns:
            FailRun, when the run can reach its only objective no more.

        Raises:
            AgentFailed: the user's evaluation raised.
            ConfigError: it does not return a number that a goal looks at.
        """
        failures = []
        for done in self.evaluator.poll() if self.evaluator is not None else ():
            if isinstance(done, EvaluatorDied):
                failures += self.died(done, now)
            else:
                self.take(done)
        return failures

    def take(self, done: Evaluation) -> None:
        """Show the result of an evaluation, write its record, and keep the model if it is the best.

        Raises:
            ConfigError: no evaluation has returned a number that a goal looks at.
        """
        self.values, self._cycle = done.values, done.cycle
        others = dict(done.values)
        plain = {name: others.pop(name, None) for name in ("error", "loss")}
        fields = {"cycle": done.cycle, "seconds": done.seconds, **plain, "metrics": others}
        self.history.append({"kind": "evaluation", "t": self._write("evaluation", fields), **fields})

        self._names |= dict.fromkeys(done.values)
        for goal in self._goals:
            if goal.metric not in self._names:
                returned = ", ".join(self._names) or "nothing"
                raise ConfigError(f"{type(goal).__name__}: the evaluation returns no {goal.metric!r}, but {returned}")
        self.newest = None if self._asked is None else Kept(*self._asked, done.values)
        self._asked = None
        if done.cycle and self.best is not None:
            self.best.take(done.values)
        if done.cycle and self._keeps is not None and self._keeps.take(done.values):
            self.best_model = self.newest

    def looked_at(self) -> None:
        """The run goes on: its goals are not reached by the newest model, which need not be kept."""
        self.newest = None

    def died(self, event: EvaluatorDied, now: float) -> list[FailRun]:
        """The evaluator's process has ended; returns as `collect` does."""
        failures = []
        for one in self._rule.handle(event, now):
            if isinstance(one, StartAgain):
                log.warning("the evaluator is started again: %s", event.reason)
                self._next, self._asked_cycle = now + one.after_s, -1
                self._write("evaluator", {"event": "restarted", "cycle": event.cycle, "reason": event.reason})
            elif isinstance(one, StopEvaluating):
                log.warning("nothing is evaluated any more: %s", one.reason)
                assert self.evaluator is not None
                self.evaluator.close()
                self.evaluator = None
                self._write("evaluator", {"event": "stopped", "cycle": event.cycle, "reason": one.reason})
            else:
                failures.append(one)
        return failures
