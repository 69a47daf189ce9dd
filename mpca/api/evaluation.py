"""The runner's `Evaluator` port over the evaluator's process: the joint model goes there under the model's own names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpca.agent.evaluator_client import Evaluated, EvaluatorProcess
from mpca.driver.joint import JointModel
from mpca.errors import AgentFailed, RunFailed

__all__ = ["JointEvaluator"]


class JointEvaluator:
    """One evaluation at a time. `function` is that of the objective `Evaluate`."""

    def __init__(self, function: Callable[[dict[str, Any]], dict[str, float]]) -> None:
        self._process = EvaluatorProcess(function)

    @property
    def busy(self) -> bool:
        return self._process.busy

    def submit(self, cycle: int, joint: JointModel) -> None:
        """Copy the joint model as it is now, and return."""
        self._process.submit(cycle, joint.layout.model_tensors(joint.vector()))

    def poll(self) -> list[Evaluated]:
        """Results that are here.

        Raises:
            AgentFailed: the user's function raised; begins with the root cause in one line.
            RunFailed: its process ended.
        """
        done = self._process.poll()
        for one in done:
            if one.failed is not None:
                lines = one.failed.strip().splitlines()
                error = AgentFailed if lines[0].startswith("Traceback ") else RunFailed
                raise error(f"the evaluation of cycle {one.cycle} failed: {lines[-1]}\n{one.failed}")
        return done

    def close(self) -> None:
        """End the process; safe to call twice."""
        self._process.close()
