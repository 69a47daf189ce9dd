"""Runs that lose agents and executors, on real ones: the run goes on, and its records say truly what happened."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.spark.jobs import quadratic
from tests.spark.paper import read_tape, recompute
from tests.spark.support import alive
from tests.support.fake_executor import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

ELEMENTS, BUFFERS = 300, 7


def check_model(told) -> None:
    """The joint model is what the ledger says that it was made of."""
    state = told.ended.model_state
    got = np.concatenate([state["first"], state["second"], state["walked"]])
    start = told.ended.returns[0]["start"]
    expected = recompute(start, ELEMENTS, told.cycles, read_tape(told.run.folder, ELEMENTS + BUFFERS))
    np.testing.assert_allclose(got, expected.x, rtol=1e-5, atol=1e-6)


def check_survivors(told, *agents: int) -> None:
    """They never noticed: one process each, one incarnation, to the end."""
    for agent in agents:
        (started,) = [one for one in told.agents("started") if one.index == agent]
        assert told.ended.returns[agent]["pid"] == started.pid
        assert {one.contributors[agent]["incarnation"] for one in told.cycles if agent in one.contributors} == {0}


def check_away_and_back(told, agent: int):
    """It was lost and came back as the same process, perhaps more than once: deadlines are short here. The first loss."""
    lost = [one for one in told.agents("lost") if one.index == agent]
    back = [one for one in told.agents("rediscovered") if one.index == agent]
    assert lost
    assert len(back) == len(lost)
    assert {(one.pid, one.incarnation) for one in lost + back} == {(lost[0].pid, 0)}
    return lost[0]


@pytest.mark.parametrize("preload", ["true", "false"])
def test_a_killed_agent_is_replaced(engine, preload: str) -> None:
    def story(run):
        yield lambda: run.reducing(6)
        run.kill_agent(1)
        yield lambda: run.takes_part(1, incarnation=1)
        run.end()

    told = engine(quadratic, story=story, sets=(f"cluster.preload={preload}",))
    assert told.ended.exit_code == 0, told.ended.reason
    (lost,) = told.agents("lost")
    assert (lost.index, lost.incarnation, lost.reason.split(":")[0]) == (1, 0, "exit code 137")
    (replaced,) = told.agents("replaced")
    assert (replaced.index, replaced.incarnation, replaced.executor_id) == (1, 1, lost.executor_id)
    assert replaced.pid != lost.pid
    assert lost.t < replaced.t
    # What it had handed over whole counts; what it was asked for afterwards did not come.
    assert set(told.cycle(6).contributors) == {0, 1, 2}
    assert 1 in told.cycle(7).left_out
    assert set(told.cycle(7).contributors) == {0, 2}
    assert all(one.submissions == 1 for one in told.cycles)
    check_survivors(told, 0, 2)
    assert told.ended.summary["agents_lost"] == told.ended.summary["agents_replaced"] == 1


def test_an_executor_killed_between_materialising_and_summing(engine) -> None:
    shared = set(os.listdir("/dev/shm"))

    def story(run):
        yield lambda: run.reducing(6)
        lost = run.pid(1)
        run.kill_executor(1)
        wait_until(lambda: not alive(lost), "the end of its agent", 10.0)
        wait_until(lambda: set(os.listdir("/dev/shm")) <= shared, "shared memory as before", 10.0)
        yield lambda: run.takes_part(1, incarnation=1)
        run.end()

    told = engine(quadratic, story=story)
    assert told.ended.exit_code == 0, told.ended.reason
    cut = told.cycle(6)
    assert set(cut.contributors) == {0, 2}
    assert cut.submissions == 2
    (lost,) = told.agents("lost")
    assert cut.left_out == {1: f"executor {lost.executor_id} lost"}
    (replaced,) = told.agents("replaced")
    assert (replaced.index, replaced.incarnation) == (1, 1)
    assert replaced.executor_id != lost.executor_id
    assert [one.cycle for one in told.cycles] == list(range(len(told.cycles)))
    assert {one.submissions for one in told.cycles if one.cycle != 6} == {1}
    check_survivors(told, 0, 2)
    check_model(told)  # K - 1 on all ranges: of no element is another mean


def test_a_stopped_agent_is_left_out_and_welcome_again(engine) -> None:
    seen = {}

    def story(run):
        yield lambda: run.reducing(6)
        run.stop_agent(1)
        yield lambda: any(agent == 1 for _, agent in run.late)
        (seen["late"],) = [cycle for cycle, agent in run.late if agent == 1]
        yield lambda: run.takes_part(0, incarnation=0, after=seen["late"])
        run.continue_agent(1)
        yield lambda: run.takes_part(1, incarnation=0, after=seen["late"])
        run.end()

    told = engine(quadratic, story=story, sets=("cluster.cycle_deadline=3s",))
    assert told.ended.exit_code == 0, told.ended.reason
    lost = check_away_and_back(told, 1)
    assert lost.reason
    assert lost.reason in told.cycle(seen["late"]).left_out[1]
    assert not told.agents("replaced")
    assert len([one for one in told.cycles if 1 not in one.contributors]) >= 3, "the run went on without it"
    check_survivors(told, 0, 1, 2)


def test_a_stopped_executor_is_left_out_and_asked_again(engine) -> None:
    """It cannot say that it is late: its order is over its time, is cancelled, and goes out again without it."""
    seen = {}

    def story(run):
        yield lambda: run.reducing(6)
        seen["cycle"] = run.coming.reduce.cycle
        run.stop_executor(1)
        yield lambda: run.takes_part(0, incarnation=0, after=seen["cycle"])
        run.continue_executor(1)
        yield lambda: run.takes_part(1, incarnation=0, after=seen["cycle"])
        run.end()

    told = engine(quadratic, story=story, sets=("cluster.cycle_deadline=4s",))
    assert told.ended.exit_code == 0, told.ended.reason
    cut = told.cycle(seen["cycle"])
    assert set(cut.contributors) == {0, 2}
    assert set(cut.left_out) == {1}
    assert cut.submissions == 2
    check_away_and_back(told, 1)
    check_survivors(told, 0, 1, 2)
    check_model(told)


def test_too_few_agents_pause_the_run_until_there_are_enough(engine) -> None:
    def story(run):
        yield lambda: run.reducing(6)
        run.kill_agent(1)
        yield lambda: run.takes_part(1, incarnation=1)
        run.end()

    told = engine(quadratic, story=story, sets=("cluster.min_agents=3",))
    assert told.ended.exit_code == 0, told.ended.reason
    began, ended = told.pauses
    assert began.end is None
    assert began.reason == ended.reason == "2 of 3 agents alive, min_agents=3"
    assert began.start == ended.start < ended.end
    assert all(len(one.contributors) == 3 for one in told.cycles)
    assert not [one for one in told.cycles if began.start < one.stages["reduce"]["start"] < ended.end]
    check_survivors(told, 0, 2)


def test_what_is_not_finite_never_enters(engine) -> None:
    def story(run):
        yield lambda: any(not one.finite for one in run.frozen.values())
        (bad,) = [key for key, one in run.frozen.items() if not one.finite]
        yield lambda: run.takes_part(1, incarnation=0, after=bad[0])
        run.end()

    told = engine(quadratic, story=story, poison=(1, 60))
    assert told.ended.exit_code == 0, told.ended.reason
    without = [one for one in told.cycles if one.left_out.get(1) == "not finite"]
    assert without
    assert all(1 not in one.contributors for one in without)
    assert all(np.isfinite(value).all() for value in told.ended.model_state.values())
    assert all(np.isfinite(vector).all() for vector in told.run.published.values())
    check_survivors(told, 0, 1, 2)  # it took the joint model as its own, and goes on


def test_what_moved_too_far_never_enters(engine) -> None:
    def story(run):
        yield lambda: any(one.distance > 1e6 for one in run.frozen.values())
        (bad,) = [key for key, one in run.frozen.items() if one.distance > 1e6]
        yield lambda: run.takes_part(1, incarnation=0, after=bad[0])
        run.end()

    told = engine(quadratic, story=story, wild=(1, 60))
    assert told.ended.exit_code == 0, told.ended.reason
    without = [one for one in told.cycles if 1 in one.left_out and one.left_out[1].startswith("norm limit: it moved ")]
    assert len(without) == 1
    assert set(without[0].contributors) == {0, 2}
    assert all(np.abs(value).max() < 1e6 for value in told.ended.model_state.values())
    assert all(np.abs(vector).max() < 1e6 for vector in told.run.published.values())
    assert not told.agents("lost")
    check_survivors(told, 0, 1, 2)  # it took the joint model as its own, and goes on
    check_model(told)


def test_a_users_exception_ends_the_run_with_its_traceback(engine) -> None:
    told = engine(quadratic, fail=(1, 40))
    assert (told.ended.exit_code, told.ended.summary["status"]) == (1, "failed")
    first, *rest = told.ended.reason.splitlines()
    assert first.startswith("agent 1 (host ")
    assert first.endswith("raised ValueError: the user's own mistake")
    assert any("in quadratic" in line for line in rest)


def test_a_train_function_that_returns_early_leaves_the_others(engine) -> None:
    def story(run):
        yield lambda: 1 in run.finished
        last = max(cycle for cycle, who in run.frozen if who.agent == 1)
        yield lambda: run.takes_part(0, incarnation=0, after=last, times=9)
        run.end()

    told = engine(quadratic, story=story, leave=(1, 80))
    assert (told.ended.exit_code, told.ended.summary["status"]) == (0, "reached")
    assert told.ended.returns[1]["steps"] == 80
    finished = told.agents("finished")
    assert finished[0].index == 1
    assert not told.agents("lost")
    assert set(told.cycles[-1].contributors) == {0, 2}
    check_survivors(told, 0, 1, 2)


def test_agents_with_different_models_are_refused(engine) -> None:
    told = engine(quadratic, own_shape=True)
    assert told.ended.exit_code == 1
    assert told.ended.reason.startswith("agents build different models: ")
    assert told.cycles == []
