"""Evaluations of the joint model: when one begins, what came of it, and the records of both.

A process beside the driver evaluates. What follows when that process ends is decided in `evaluating.py`; which joint model may
be evaluated is the runner's affair.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from mpca.algorithm.joint import JointShard
from mpca.driver.evaluating import EvaluatorDied, EvaluatorRule, FailRun, StartAgain, StopEvaluating
from mpca.driver.joint import JointModel
from mpca.driver.objectives import Goals
from mpca.storage.layout import ModelLayout

__all__ = ["Evaluation", "Evaluations", "Evaluator"]

log = logging.getLogger("mpca.run")


class Evaluation(Protocol):
    """The result of one evaluation: of the joint model at `cycle`; it took `seconds`."""

    cycle: int
    error: float | None
    loss: float | None
    seconds: float


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
        self.error: float | None = None
        self.loss: float | None = None
        #: The states and the layout that the newest evaluation is of, with the local tensors of that moment.
        self.newest: tuple[list[JointShard | None], ModelLayout] | None = None
        self._wanted, self._rule, self._write = goals.evaluate, EvaluatorRule(goals), write
        self._next = 0.0
        self._asked_cycle = -1
        self._cycle = 0  # cycles that the joint model of `error` had seen

    @property
    def judged(self) -> float | None:
        """`error`, but for that of x_0, which is shown, and reaches no target."""
        return self.error if self._cycle else None

    def due(self, now: float, cycle: int) -> bool:
        """Whether the joint model of this cycle should be evaluated now."""
        if self.evaluator is None or self._wanted is None:
            return False
        return now >= self._next and cycle > self._asked_cycle and not self.evaluator.busy

    def begin(self, now: float, cycle: int, joint: JointModel) -> None:
        """Evaluate the joint model, when it is due."""
        assert self.evaluator is not None
        assert self._wanted is not None
        self._next = now + float(self._wanted.every)
        self._asked_cycle = cycle
        self.newest = list(joint.states), joint.layout
        self.evaluator.submit(cycle, joint)

    def collect(self, now: float) -> list[FailRun]:
        """Take what the evaluator has to say.

        Returns:
            FailRun, when the run can reach its only objective no more.

        Raises:
            AgentFailed: the user's evaluation raised.
        """
        failures = []
        for done in self.evaluator.poll() if self.evaluator is not None else ():
            if isinstance(done, EvaluatorDied):
                failures += self.died(done, now)
            else:
                self.take(done)
        return failures

    def take(self, done: Evaluation) -> None:
        """Show the result of an evaluation, and write its record."""
        self.error, self.loss, self._cycle = done.error, done.loss, done.cycle
        fields = {"cycle": done.cycle, "seconds": done.seconds, "error": done.error, "loss": done.loss}
        self.history.append({"kind": "evaluation", "t": self._write("evaluation", fields), **fields})

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
