"""The runner's `Evaluator` over a process of its own, which gets the joint model under the model's own names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpca.agent.evaluator_client import Died, Evaluated, EvaluatorProcess
from mpca.driver.evaluating import EvaluatorDied
from mpca.driver.joint import JointModel
from mpca.errors import AgentFailed
from mpca.wire.messages import Files

__all__ = ["JointEvaluator"]


class JointEvaluator:
    """One evaluation at a time. `function` belongs to the objective `Evaluate`; `serve` reads files of HDFS for it."""

    def __init__(
        self, function: Callable[[dict[str, Any]], dict[str, float]], serve: Callable[[Files], None] | None = None
    ) -> None:
        self._process = EvaluatorProcess(function, serve=serve)

    @property
    def busy(self) -> bool:
        return self._process.busy

    def submit(self, cycle: int, joint: JointModel) -> None:
        """Evaluate the joint model as it is now. Its states are never written to, so they are copied later, off this thread."""
        layout, states = joint.layout, [joint.state(shard).x for shard in range(len(joint.states))]
        self._process.submit(cycle, lambda: layout.model_tensors(*states))

    def poll(self) -> list[Evaluated | EvaluatorDied]:
        """Take the results that have come, and the news that the process has died.

        Raises:
            AgentFailed: the user's function raised; begins with the root cause in one line.
        """
        done: list[Evaluated | EvaluatorDied] = []
        for one in self._process.poll():
            if isinstance(one, Died):
                done.append(EvaluatorDied(one.reason, one.cycle))
                continue
            if one.failed is not None:
                cause = one.failed.strip().splitlines()[-1]
                raise AgentFailed(f"the evaluation of cycle {one.cycle} failed: {cause}\n{one.failed}")
            done.append(one)
        return done

    def close(self) -> None:
        """End the process; safe to call twice."""
        self._process.close()
