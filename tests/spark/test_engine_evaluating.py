"""The evaluator is slow, or killed while it evaluates: the run goes on, with evaluations and then without them."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from safetensors.numpy import load_file

from mpca.driver.objectives import Evaluate
from mpca.records import BackupRecord, EvaluationRecord, EvaluatorRecord
from mpca.timeouts import LAST_EVALUATION_S
from tests.spark.engine import Observed, Told
from tests.spark.jobs import evaluated, quadratic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def busy() -> Iterator[int]:
    """The evaluator that this process has asked for something, which may still be starting."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own descriptor is gone by now
            if os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:mpca-evaluate-"):
                for one in psutil.Process().children():
                    with contextlib.suppress(psutil.Error):
                        if "mpca.agent.evaluator" in one.cmdline():
                            yield one.pid


def records(run: Observed) -> str:
    path = run.folder.with_name(run.folder.name.removesuffix("-files")) / "records.jsonl"
    return path.read_text(encoding="utf-8")


def events(told: Told) -> list[EvaluatorRecord]:
    return [one for one in told.records if isinstance(one, EvaluatorRecord)]


def kill_three(run: Observed):
    dead: set[int] = set()
    while len(dead) < 3:
        yield lambda: run.reducing(0) and set(busy()) - dead
        for pid in set(busy()) - dead:
            os.kill(pid, signal.SIGKILL)
            dead.add(pid)


@pytest.mark.slow
@pytest.mark.long
def test_one_kill_in_an_evaluation_costs_that_one_and_no_more(engine, tmp_path: Path) -> None:
    def story(run: Observed):
        yield lambda: (tmp_path / "evaluating").exists()
        os.kill(int((tmp_path / "evaluating").read_text()), signal.SIGKILL)
        (tmp_path / "go").touch()
        yield lambda: records(run).count('"kind": "evaluation"') >= 2
        run.end()

    evaluate = Evaluate(partial(evaluated, str(tmp_path)), every="100ms")
    told = engine(quadratic, story=story, evaluate=evaluate, tape=False)
    assert told.ended.exit_code == 0, told.ended.reason
    (event,) = events(told)
    assert (event.event, event.reason) == ("restarted", "it ended: exit_code=-9 (SIGKILL)")
    evaluations = [one for one in told.records if isinstance(one, EvaluationRecord)]
    assert len(evaluations) >= 2
    assert event.cycle not in [one.cycle for one in evaluations]


def test_after_three_the_run_goes_on_without_evaluations(engine, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def story(run: Observed):
        yield from kill_three(run)
        yield lambda: '"event": "stopped"' in records(run)
        cycle = run.orders[-1].freeze.cycle
        yield lambda: run.reducing(cycle + 10)
        run.end()

    evaluate = Evaluate(partial(evaluated, str(tmp_path)), every="100ms")
    with caplog.at_level(logging.WARNING, "mpca.run"):
        told = engine(quadratic, story=story, evaluate=evaluate, tape=False, sets=("objectives.target_error=0.1",))
    assert told.ended.exit_code == 0, told.ended.reason
    assert [one.event for one in events(told)] == ["restarted", "restarted", "stopped"]
    assert "nothing is evaluated any more: the evaluator ended 3 times in 10 minutes" in caplog.text
    assert told.ended.summary["final_error"] is None


def test_a_run_that_came_to_its_end_waits_for_its_last_evaluation(engine, tmp_path: Path) -> None:
    """The evaluator is busy with an older model for longer than a run that was interrupted would wait."""
    later = threading.Timer(LAST_EVALUATION_S + 1, (tmp_path / "go").touch)

    def story(run: Observed):
        yield lambda: (tmp_path / "evaluating").exists() and run.reducing(3)
        later.start()
        run.end()

    told = engine(quadratic, story=story, evaluate=Evaluate(partial(evaluated, str(tmp_path)), every="100ms"), tape=False)
    later.join()
    assert told.ended.exit_code == 0, told.ended.reason
    assert told.ended.summary["final_error"] == 0.5
    last = [one for one in told.records if isinstance(one, EvaluationRecord)][-1]
    assert last.cycle >= 3, "the last model's, not the one's that the evaluator was busy with"
    (backup,) = (one for one in told.records if isinstance(one, BackupRecord))
    assert backup.ok
    assert told.records.index(backup) < told.records.index(last), "nothing is lost if the driver dies meanwhile"


def test_a_run_that_nothing_else_would_end_fails_with_its_model_saved(engine, tmp_path: Path) -> None:
    evaluate = Evaluate(partial(evaluated, str(tmp_path)), every="100ms")
    sets = ("objectives.target_error=0.1", "objectives.max_time=0s")
    told = engine(quadratic, story=kill_three, evaluate=evaluate, tape=False, sets=sets)
    assert (told.ended.exit_code, told.ended.summary["status"]) == (1, "failed")
    assert told.ended.reason.startswith("the evaluator ended 3 times in 10 minutes")
    assert told.ended.reason.endswith("nothing else would end the run, which was to reach error <= 0.1")
    assert set(load_file(told.ended.run_dir / "model.safetensors")) == set(told.ended.model_state)
