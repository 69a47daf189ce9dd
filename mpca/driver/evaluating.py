"""What follows when the evaluator's process ends: it is started again, or the run goes on without evaluations.

The kernel may end it when memory is short, a fault in a library may, or a person. Training does not depend on it. Pure: events
in, instructions out, the time is an argument::

    ANSWERING --EvaluatorDied, the first or second in ten minutes--> ANSWERING   StartAgain
        |
        +------ the third in ten minutes ------> STOPPED   StopEvaluating; FailRun when nothing but a target was to end the run

Early stopping is a brake, and no end that a run was to reach: without it the run goes on until its train functions return.

This file is not about a user's function that raises: that is an error in the user's code, and ends the run.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpca.driver.objectives import Goals
from mpca.timeouts import EVALUATOR_AGAIN_S, EVALUATOR_DEATHS_S

__all__ = ["EvaluatorDied", "EvaluatorRule", "FailRun", "StartAgain", "StopEvaluating"]

MOST_DEATHS = 3


@dataclass(frozen=True, slots=True)
class EvaluatorDied:
    """The process ended, or could not be started."""

    reason: str
    cycle: int | None  # whose evaluation is lost with it


@dataclass(frozen=True, slots=True)
class StartAgain:
    """Ask for an evaluation after so many seconds. That starts the process."""

    after_s: float


@dataclass(frozen=True, slots=True)
class StopEvaluating:
    """Evaluate nothing more in this attempt, and say why."""

    reason: str


@dataclass(frozen=True, slots=True)
class FailRun:
    """End the run in order, as failed."""

    reason: str


class EvaluatorRule:
    """See the module's text.

    Args:
        goals: of the run. They say whether something other than an evaluation can end the run.
    """

    def __init__(self, goals: Goals) -> None:
        self.state = "ANSWERING"
        self._targets = " or ".join(map(str, goals.targets))
        self._ends_otherwise = not self._targets or goals.max_time is not None or goals.max_cycles is not None
        self._deaths: list[float] = []

    def handle(self, event: EvaluatorDied, now: float) -> list[StartAgain | StopEvaluating | FailRun]:
        """Apply one event and say what to do next.

        Args:
            event: the process has ended.
            now: when, in seconds of a monotonic clock.

        Returns:
            StartAgain, or StopEvaluating, which FailRun may follow.
        """
        assert self.state == "ANSWERING", f"{event} in state {self.state}"
        self._deaths = [death for death in self._deaths if now - death < EVALUATOR_DEATHS_S] + [now]
        if len(self._deaths) < MOST_DEATHS:
            return [StartAgain(EVALUATOR_AGAIN_S)]
        self.state = "STOPPED"
        reason = (
            f"the evaluator ended {MOST_DEATHS} times in {EVALUATOR_DEATHS_S / 60:.0f} minutes, the last time: {event.reason}"
        )
        if self._ends_otherwise:
            return [StopEvaluating(reason)]
        why = f"{reason}; nothing else would end the run, which was to reach {self._targets}"
        return [StopEvaluating(reason), FailRun(why)]
