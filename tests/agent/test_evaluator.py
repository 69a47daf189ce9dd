from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import psutil
import pytest
import torch

from mpca.agent.evaluator import _evaluate
from mpca.agent.evaluator_client import Died, Evaluated, EvaluatorProcess
from mpca.errors import ConfigError
from mpca.storage.tensors import RawTensor, dump
from tests.support.fake_executor import wait_until

pytestmark = pytest.mark.long


def mean_error(state: dict) -> dict[str, float]:
    print("to stderr, please")
    if "fail" in state:
        raise ValueError("cannot evaluate")
    if "die" in state:
        os.kill(os.getpid(), signal.SIGKILL)
    if "fork" in state and os.fork() == 0:  # as a data loader's workers: they hold every pipe that we do
        signal.pause()
    if "slow" in state:
        signal.pause()
    return {"error": float(state["w"].mean()), "loss": float(os.nice(0))}


@pytest.fixture(scope="module", autouse=True)
def _by_value():
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def forks(pid: int) -> list[psutil.Process]:
    """Its children that run what it runs; torch starts others for a moment while it is imported."""
    found, own = [], psutil.Process(pid).cmdline()
    for child in psutil.Process(pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [child] if child.cmdline() == own else []
    return found


def stay(pid: int) -> list[psutil.Process]:
    """Those that are there for a second: before its exec, what torch starts looks like a fork too."""
    return [child for child in forks(pid) if time.time() - child.create_time() > 1.0]


def answer(evaluator: EvaluatorProcess) -> Any:
    done: list[Evaluated | Died] = []

    def arrived() -> bool:
        done.extend(evaluator.poll())
        return bool(done)

    wait_until(arrived, "an answer of the evaluator", deadline_s=120)
    return done[0]


def test_evaluator_answers_fails_dies_and_starts_again() -> None:
    with EvaluatorProcess(mean_error) as evaluator:
        evaluator.submit(4, lambda: {"w": np.float32([0.25, 0.75])})
        assert evaluator.busy
        first = answer(evaluator)
        assert (first.cycle, first.values, first.failed) == (4, {"error": 0.5, "loss": os.nice(0)}, None)
        assert first.seconds > 0
        assert not evaluator.busy

        evaluator.submit(5, lambda: {"fail": np.zeros(1, np.float32)})
        failed = answer(evaluator)
        assert (failed.cycle, failed.values) == (5, {})
        assert "ValueError: cannot evaluate" in (failed.failed or "")

        pid = evaluator.pid
        evaluator.submit(6, lambda: {"die": np.zeros(1, np.float32)})
        assert answer(evaluator) == Died("it ended: exit_code=-9 (SIGKILL)", 6)
        assert not evaluator.busy
        assert evaluator.poll() == [], "told once"
        evaluator.submit(7, lambda: {"w": np.zeros(1, np.float32)})
        assert evaluator.pid != pid
        assert answer(evaluator).values["error"] == 0.0
        evaluator.submit(8, lambda: {"w": np.zeros(1, np.float32)})
        assert answer(evaluator).values["loss"] == min(os.nice(0) + 5, 19), "agents of this machine come first from now on"
        pid = evaluator.pid
    assert not Path(f"/proc/{pid}").exists()


def test_a_function_that_is_larger_than_a_pipe_arrives_whole_and_has_one_core() -> None:
    """Nobody waits for the pipe: the rest goes when the evaluator has read what is there."""
    table = os.urandom(1 << 20)

    def look(state: dict) -> dict[str, float]:
        return {"error": 0.0, "loss": sum(table) + 0.5 * torch.get_num_threads()}

    with EvaluatorProcess(look) as evaluator:
        evaluator.submit(3, lambda: {"w": np.zeros(2, np.float32)})
        said = answer(evaluator)
    assert (said.cycle, said.failed, said.values["loss"]) == (3, None, sum(table) + 0.5)


def test_one_that_dies_between_two_requests_is_told_of_too() -> None:
    with EvaluatorProcess(mean_error) as evaluator:
        evaluator.submit(1, lambda: {"w": np.zeros(1, np.float32)})
        answer(evaluator)
        os.kill(evaluator.pid, signal.SIGTERM)
        assert answer(evaluator) == Died("it ended: exit_code=-15 (SIGTERM)", None)


def test_what_it_has_forked_neither_hides_its_death_nor_outlives_it() -> None:
    with EvaluatorProcess(mean_error) as evaluator:
        evaluator.submit(1, lambda: {"fork": np.zeros(1, np.float32), "slow": np.zeros(1, np.float32)})
        pid = evaluator.pid
        wait_until(lambda: evaluator.poll() == [] and len(stay(pid)) == 1, "the fork", deadline_s=120)
        (child,) = stay(pid)
        os.kill(pid, signal.SIGKILL)
        assert answer(evaluator) == Died("it ended: exit_code=-9 (SIGKILL)", 1)
        wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "the end of the fork")


def test_it_starts_when_it_is_asked_and_if_it_cannot_it_has_died() -> None:
    with EvaluatorProcess(mean_error, python="/nowhere/python") as evaluator:
        assert (evaluator.pid, evaluator.poll()) == (None, []), "it starts when there is something to evaluate"
        evaluator.submit(3, lambda: {"w": np.zeros(1, np.float32)})
        (died,) = evaluator.poll()
        assert died.cycle == 3
        assert "could not be asked: [Errno 2] No such file or directory: '/nowhere/python'" in died.reason
        assert not evaluator.busy


def test_close_ends_it_in_the_middle_of_its_start() -> None:
    evaluator = EvaluatorProcess(mean_error)
    evaluator.submit(1, lambda: {"w": np.zeros(1, np.float32)})
    pid = evaluator.pid
    evaluator.close()
    evaluator.close()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("returns", "says"),
    [
        (
            {"error": 0.1, "note": "good"},
            "an evaluation returns numbers, or tensors of one element: note is a str 'good'; print text",
        ),
        ({0: 0.1}, "an evaluation returns numbers by name, and the name must be text, got 0"),
        ({None: 0.1}, "an evaluation returns numbers by name, and the name must be text, got None"),
        (0.1, 'an evaluation returns numbers by name, such as {"error": 0.1}, and not a float'),
        (None, 'an evaluation returns numbers by name, such as {"error": 0.1}, and not a NoneType'),
    ],
)
def test_what_is_no_number_by_name_is_refused_in_a_sentence(tmp_path: Path, returns: Any, says: str) -> None:
    (tmp_path / "state").write_bytes(dump({"w": RawTensor("float32", (1,), bytes(4))}))
    with pytest.raises(ConfigError) as refused:
        _evaluate(lambda state: returns, str(tmp_path / "state"))
    assert str(refused.value) == says
