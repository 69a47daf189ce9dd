"""What train functions do once the run has reached its end, on real executors: waited for, cut off by name, or failed."""

from __future__ import annotations

import json

import cloudpickle
import pytest

from mpca.driver.status import RunStatus
from tests.spark import behind

cloudpickle.register_pickle_by_value(behind)
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(400)]


def test_work_behind_the_loop_has_its_time_and_what_is_cut_off_is_named(engine) -> None:
    """Agent 0 takes longer than the four seconds that a loop has, agent 1 longer than all it may, agent 2 never stops."""
    lines: list[str] = []

    def look(status: RunStatus) -> None:
        if status.state == "stopping" and status.reason:
            lines.append(status.reason)

    sets = ("objectives.max_cycles=6", "cluster.finish_timeout=9s")
    told = engine(behind.works, {0: 6.0, 1: 600.0}, never=2, sets=sets, on_status=look)
    assert told.ended.returns.keys() == {0}
    assert any(line.startswith("agents 0, 1 at work behind the loop; at most ") for line in lines)
    assert lines[-1].startswith("agent 1 at work behind the loop; at most ")
    summary = told.ended.summary
    assert summary["status"] == "max_cycles"
    assert summary["cut_off"].keys() == {"1", "2"}
    assert summary["cut_off"]["1"].startswith("was at work behind its loop 9")
    assert summary["cut_off"]["1"].endswith("after the stop (cluster.finish_timeout)")
    assert summary["cut_off"]["2"].startswith("went on making updates ")
    assert told.ended.exit_code == 1
    assert "but what stood behind the loop was cut off: agent 1 was at work" in told.ended.reason
    written = json.loads((told.ended.run_dir / "summary.json").read_text())
    assert written["cut_off"] == summary["cut_off"]
    assert (told.ended.run_dir / "model.safetensors").exists()
    assert summary["seconds"] < told.records[-1].t - 8.0, "what follows the stop is no training"


def test_an_exception_behind_the_loop_fails_the_run_with_its_traceback_and_saves_the_model(engine) -> None:
    told = engine(behind.raises, agent=1, sets=("objectives.max_cycles=6",))
    assert (told.ended.exit_code, told.ended.summary["status"]) == (1, "failed")
    first, *rest = told.ended.reason.splitlines()
    assert first.startswith("agent 1 (host ")
    assert first.endswith("raised ValueError: the last evaluation has a mistake")
    assert rest[0] == "Traceback (most recent call last):"
    assert any("behind.py" in line and "in raises" in line for line in rest)
    assert rest[-1] == "before that, training had come to its end: max_cycles, 6 cycles"
    assert (told.ended.run_dir / "model.safetensors").exists()
    assert told.ended.model_state.keys() == {"weight", "bias"}


def test_an_object_that_is_returned_fails_the_run_by_its_place_and_saves_model_and_records(engine) -> None:
    told = engine(behind.returns_an_object, agent=1, sets=("objectives.max_cycles=6",))
    assert (told.ended.exit_code, told.ended.summary["status"]) == (1, "failed")
    first = told.ended.reason.splitlines()[0]
    assert (
        "raised TypeError: what the train function returned cannot be sent to the driver: returned['seen'][1] is of type set;"
        in first
    )
    assert (told.ended.run_dir / "model.safetensors").exists()
    assert told.ended.model_state.keys() == {"weight", "bias"}
    assert len(told.cycles) == 6
    assert told.ended.returns == {agent: agent for agent in told.ended.returns}, "of the others, which end beside it"
    assert 1 not in told.ended.returns


def test_a_forgotten_attach_is_said_when_the_function_returns(engine) -> None:
    told = engine(behind.forgets, sets=("cluster.start_timeout=300s",))
    assert (told.ended.exit_code, told.ended.summary["status"], told.ended.summary["final"]) == (1, "failed", True)
    assert "the train function returned without mpca.attach; call mpca.attach(model, optimizer)" in told.ended.reason
