"""What an agent's process can do to a run besides being killed: it is asked to end, crashes in C code, holds its lock."""

from __future__ import annotations

import signal

import pytest

from tests.spark.jobs import quadratic
from tests.spark.support import alive
from tests.spark.test_engine_losing import check_away_and_back, check_model, check_survivors
from tests.support.fake_executor import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_agents_that_are_ended_politely_or_crash_in_c_are_replaced(engine) -> None:
    """Two at once and one later, in one run; agent 0 is touched by none of it."""
    pids = {}

    def story(run):
        yield lambda: run.reducing(3)
        pids["SIGTERM"], pids["segfault"] = run.pid(1), run.pid(2)
        run.tell_agent(2, "segfault")
        run.end_agent(1)
        wait_until(lambda: not alive(pids["SIGTERM"]), "the end of what was asked to end", 5.0)
        yield lambda: run.takes_part(1, incarnation=1) and run.takes_part(2, incarnation=1)
        pids["abort"] = run.pid(1)
        run.tell_agent(1, "abort")
        yield lambda: run.takes_part(1, incarnation=2)
        for agent, word in ((2, "segfault"), (1, "abort")):
            assert run.fired(agent, word) == [pids[word]]
        run.end()

    told = engine(quadratic, story=story, obey=True)
    assert told.ended.exit_code == 0, told.ended.reason
    ended = {one.pid: one.reason for one in told.agents("lost")}
    assert ended.keys() == set(pids.values())
    assert ended[pids["SIGTERM"]].startswith(f"exit code {128 + signal.SIGTERM}")
    crashed = ended[pids["segfault"]]
    assert crashed.startswith(f"exit code {128 + signal.SIGSEGV}; Fatal Python error: Segmentation fault, File ")
    assert crashed.endswith("in string_at")
    crashed = ended[pids["abort"]]
    assert crashed.startswith(f"exit code {128 + signal.SIGABRT}; Fatal Python error: Aborted, File ")
    assert crashed.endswith("in _obey")
    assert {(one.index, one.incarnation) for one in told.agents("replaced")} == {(1, 1), (2, 1), (1, 2)}
    assert all(one.submissions == 1 for one in told.cycles), "no executor was lost with its agent"
    check_survivors(told, 0)
    check_model(told)


def test_an_agent_that_holds_its_interpreters_lock_is_left_out_and_welcome_again(engine) -> None:
    """No thread of it answers, that which talks to its executor included.

    Seven seconds with a deadline of two, for seventy with one of sixty: the same wait, by the same clock.
    """
    deadline_s, hold_s = 2.0, 7.0
    seen = {}

    def story(run):
        yield lambda: run.reducing(6)
        run.tell_agent(1, f"hold {hold_s}")
        yield lambda: run.fired(1, "hold") and any(agent == 1 for _, agent in run.late)
        seen["late"] = max(cycle for cycle, agent in run.late if agent == 1)
        yield lambda: run.takes_part(0, incarnation=0, after=seen["late"])
        yield lambda: run.takes_part(1, incarnation=0, after=seen["late"])
        assert run.fired(1, "hold") == [run.pid(1)]
        run.end()

    told = engine(quadratic, story=story, obey=True, sets=(f"cluster.cycle_deadline={deadline_s}s",))
    assert told.ended.exit_code == 0, told.ended.reason
    check_away_and_back(told, 1)
    assert 1 in told.cycle(seen["late"]).left_out
    assert not told.agents("replaced")
    assert len([one for one in told.cycles if 1 not in one.contributors]) >= 3, "the run went on without it"
    check_survivors(told, 0, 1, 2)
    check_model(told)  # nothing of what it was asked for meanwhile entered late
