from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from mpca.agent.evaluator_client import Evaluated, EvaluatorProcess
from tests.support.fake_executor import wait_until


def mean_error(state: dict) -> dict[str, float]:
    print("to stderr, please")
    if "fail" in state:
        raise ValueError("cannot evaluate")
    if "die" in state:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"error": float(state["w"].mean()), "loss": float(os.nice(0))}


@pytest.fixture(scope="module", autouse=True)
def _by_value():
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def answer(evaluator: EvaluatorProcess) -> Evaluated:
    done: list[Evaluated] = []

    def arrived() -> bool:
        done.extend(evaluator.poll())
        return bool(done)

    wait_until(arrived, "an answer of the evaluator", deadline_s=120)
    return done[0]


def test_evaluator_answers_fails_dies_and_starts_again() -> None:
    with EvaluatorProcess(mean_error) as evaluator:
        evaluator.submit(4, {"w": np.float32([0.25, 0.75])})
        assert evaluator.busy
        first = answer(evaluator)
        assert (first.cycle, first.error, first.loss, first.failed) == (4, 0.5, os.nice(0), None)
        assert first.seconds > 0
        assert not evaluator.busy

        evaluator.submit(5, {"fail": np.zeros(1, np.float32)})
        failed = answer(evaluator)
        assert (failed.cycle, failed.error) == (5, None)
        assert "ValueError: cannot evaluate" in (failed.failed or "")

        pid = evaluator.pid
        evaluator.submit(6, {"die": np.zeros(1, np.float32)})
        assert answer(evaluator).failed == "the evaluator ended: exit_code=-9"
        evaluator.submit(7, {"w": np.zeros(1, np.float32)})
        assert evaluator.pid != pid
        assert answer(evaluator).error == 0.0
        evaluator.submit(8, {"w": np.zeros(1, np.float32)})
        assert answer(evaluator).loss == min(os.nice(0) + 5, 19), "agents of this machine come first from now on"
    assert not Path(f"/proc/{evaluator.pid}").exists()


def test_close_ends_it_in_the_middle_of_its_start() -> None:
    evaluator = EvaluatorProcess(mean_error)
    evaluator.submit(1, {"w": np.zeros(1, np.float32)})
    evaluator.close()
    evaluator.close()
    assert not Path(f"/proc/{evaluator.pid}").exists()
