"""The runner's `Evaluator` port over the evaluator's process: the joint model goes there in a memory file without a name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mpca.agent.evaluator_client import EvaluatorProcess
from mpca.driver.joint import JointModel
from mpca.errors import RunFailed
from mpca.storage.backup import model_file

__all__ = ["Evaluation", "ProcessEvaluator"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The joint model of `cycle` on the user's test."""

    cycle: int
    error: float | None
    loss: float | None
    seconds: float


class ProcessEvaluator:
    """One evaluation at a time; a context manager that ends the process."""

    def __init__(self, function: Callable[[dict[str, Any]], dict[str, float]]) -> None:
        self._process = EvaluatorProcess(function)
        self._open: dict[int, tuple[int, int]] = {}  # request -> (cycle, descriptor of the memory file)

    @property
    def busy(self) -> bool:
        return bool(self._open)

    def submit(self, cycle: int, joint: JointModel) -> None:
        """Copy the joint model as it is now, and return."""
        fd = os.memfd_create("mpca-evaluation")
        with open(fd, "wb", closefd=False) as file:
            file.write(model_file(joint.layout, joint.vector()))
        self._open[self._process.submit(f"/proc/{os.getpid()}/fd/{fd}")] = (cycle, fd)

    def poll(self) -> list[Evaluation]:
        """Results that are here.

        Raises:
            RunFailed: the user's function raised, or its process ended.
        """
        done = []
        for answer in self._process.poll():
            cycle, fd = self._open.pop(answer.id)
            os.close(fd)
            if answer.result is None:
                cause = (answer.failed or "").strip().splitlines()[-1:] or ["unknown"]
                raise RunFailed(f"the evaluation of cycle {cycle} failed: {cause[0]}\n{answer.failed}")
            done.append(Evaluation(cycle, answer.result.get("error"), answer.result.get("loss"), answer.seconds))
        return done

    def last(self, cycle: int, joint: JointModel, seconds: float) -> Evaluation | None:
        """Evaluate the joint model that will be saved, and wait that long for it; None: it took longer."""
        deadline = time.monotonic() + seconds
        submitted = False
        while time.monotonic() < deadline:
            if not submitted and not self.busy:
                self.submit(cycle, joint)
                submitted = True
            done = self.poll()
            if submitted and done:
                return done[-1]
            time.sleep(0.005)
        return None

    def close(self) -> None:
        """End the process; safe to call twice."""
        self._process.close()
        for _, fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def __enter__(self) -> ProcessEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
