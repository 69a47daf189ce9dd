"""How long train functions may take after the stop, who is said to be at work, what was cut off, and what the run ends as."""

from __future__ import annotations

from typing import Any

import pytest

from mpca.api.finish import exit_code
from mpca.driver.agent_table import Agent
from mpca.driver.events import AgentProgress, StopRequested
from mpca.driver.finishing import Finishing
from mpca.driver.instructions import CutOff, End
from mpca.driver.states import AgentState
from mpca.wire.agent_ref import AgentId

STOP = StopRequested("max_time", "60s of training")


def said(agent: int, function: str, steps: int = 1) -> AgentProgress:
    return AgentProgress(agent, 0, steps, steps, 0.0, 0.0, {}, [], function)


class Told:
    """Agents that were told to stop at 100 s, with 60 s for what stands behind their loops."""

    def __init__(self, agents: int = 3, ending: StopRequested = STOP, finish_s: float = 60.0) -> None:
        self.agents = [Agent(index, AgentState.ACTIVE, 0, f"e{index}") for index in range(agents)]
        self.finishing = Finishing(finish_s)
        self.ending = ending
        self.finishing.tell(self.agents, ending, 100.0)

    def waiting(self, now: float) -> list[int]:
        return [one.index for one in self.agents if one.state != AgentState.FINISHED and self.finishing.waits_for(one, now)]

    def progress(self, agent: int, function: str, now: float) -> None:
        self.finishing.progress(said(agent, function), now)

    def again(self, status: str, reason: str, now: float, final: bool = False) -> StopRequested:
        self.ending = self.finishing.again(self.ending, StopRequested(status, reason, final), now)
        return self.ending

    def end(self, now: float) -> End:
        return self.finishing.end(self.ending, self.agents, now)


def test_who_goes_on_with_its_loop_has_four_seconds_and_all_others_the_whole_time() -> None:
    told = Told()
    told.progress(0, "left", 100.5)
    told.progress(1, "overrun", 103.9)
    assert told.waiting(104.1) == [0, 1, 2], "four seconds are everybody's"
    told.progress(1, "overrun", 104.2)
    assert told.waiting(104.3) == [0, 2]
    assert told.waiting(159.9) == [0, 2]
    assert told.waiting(160.0) == []


def test_updates_within_the_four_seconds_are_no_overrun() -> None:
    told = Told(agents=1)
    told.progress(0, "overrun", 103.9)
    told.progress(0, "left", 104.5)
    assert told.waiting(150.0) == [0]


def test_one_that_asks_in_vain_whether_to_stop_overruns_for_good() -> None:
    told = Told(agents=1)
    told.progress(0, "overrun", 104.5)
    told.progress(0, "left", 104.6)
    assert told.waiting(104.7) == []


def test_who_overran_and_returns_in_time_was_not_cut_off() -> None:
    told = Told(agents=2)
    told.progress(1, "overrun", 105.0)
    told.agents[1].state = AgentState.FINISHED
    told.agents[0].state = AgentState.FINISHED
    assert told.end(120.0) == End("max_time", "60s of training")


@pytest.mark.parametrize("finish_s", [0.0, 4.0])
def test_four_seconds_are_the_least(finish_s: float) -> None:
    told = Told(finish_s=finish_s)
    assert told.waiting(103.9) == [0, 1, 2]
    assert told.waiting(104.0) == []


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_an_interrupted_or_failed_run_gives_everybody_four_seconds(status: str) -> None:
    told = Told(ending=StopRequested(status, "SIGTERM"))
    told.progress(0, "left", 100.5)
    assert told.waiting(103.9) == [0, 1, 2]
    assert told.waiting(104.0) == []


def test_an_interruption_of_the_wait_shortens_it_once_and_leaves_the_status() -> None:
    told = Told()
    told.progress(0, "left", 100.5)
    assert told.again("interrupted", "SIGINT", 120.0) == STOP
    told.again("interrupted", "SIGINT", 123.0)  # the loop says so at every turn
    assert told.waiting(123.9) == [0, 1, 2]
    assert told.waiting(124.0) == []
    end = told.end(124.0)
    assert end.status == "max_time"
    assert end.cut_off[0] == CutOff(0, "was at work behind its loop 24s after the stop (SIGINT)", True)


def test_a_failure_behind_the_loop_makes_it_a_failed_run_and_the_others_have_four_seconds() -> None:
    told = Told()
    told.finishing.ended(AgentId(1, 0), "raised ValueError: no")
    failed = told.again("failed", "agent 1 raised ValueError: no\nTraceback ...", 110.0, final=True)
    assert (failed.status, failed.final) == ("failed", True)
    assert failed.reason == (
        "agent 1 raised ValueError: no\nTraceback ...\nbefore that, training had come to its end: max_time, 60s of training"
    )
    assert told.again("failed", "agent 2 raised KeyError: 1\nTraceback ...", 111.0) == failed, "the first is the cause"
    assert told.waiting(113.9) == [0, 2]
    assert told.waiting(114.0) == []
    assert [one.reason for one in told.end(114.0).cut_off][1] == "raised ValueError: no"


def test_a_failure_while_an_interruption_ends_the_run_is_told_beside_it() -> None:
    told = Told(ending=StopRequested("interrupted", "SIGTERM"))
    told.again("failed", "agent 1 raised ValueError: no\nTraceback ...", 101.0)
    ending = told.again("failed", "agent 2 raised ValueError: no\nTraceback ...", 101.0)
    assert ending == StopRequested("interrupted", "SIGTERM; then agent 1 raised ValueError: no\nTraceback ...")


def test_what_is_cut_off_is_named_and_the_exit_says_so() -> None:
    told = Told(agents=4)
    told.progress(0, "left", 101.0)
    told.progress(1, "overrun", 105.0)
    told.finishing.ended(AgentId(2, 0), "died: exit code 139")
    end = told.end(160.0)
    assert end.cut_off == (
        CutOff(0, "was at work behind its loop 1m00s after the stop (cluster.finish_timeout)", True),
        CutOff(1, "went on making updates 1m00s after the stop", False),
        CutOff(2, "died: exit code 139", False),
        CutOff(3, "had not said a word 1m00s after the stop (cluster.finish_timeout)", True),
    )
    assert end.reason.startswith("60s of training; but what stood behind the loop was cut off: agent 0 was at work behind its")
    assert "agent 1 " not in end.reason
    assert end.final, "another attempt would repeat it"
    assert exit_code(end, None) == 1


def test_who_never_left_its_loop_is_named_and_loses_nothing() -> None:
    told = Told(agents=1)
    told.progress(0, "overrun", 105.0)
    end = told.end(105.0)
    assert (end.status, end.reason, len(end.cut_off), exit_code(end, None)) == ("max_time", "60s of training", 1, 0)


def test_work_is_lost_with_a_process_that_dies_behind_its_loop() -> None:
    told = Told(agents=1)
    told.progress(0, "left", 101.0)
    told.finishing.ended(AgentId(0, 0), "died: exit code 137")
    end = told.end(102.0)
    assert end.cut_off == (CutOff(0, "died: exit code 137", True),)
    assert exit_code(end, None) == 1


def test_who_is_at_work_is_said_after_four_seconds_when_it_changes_and_once_a_minute() -> None:
    told = Told(finish_s=200.0)
    told.progress(0, "left", 100.5)
    lines: list[str] = []
    for now, there in ((103.9, 3), (104.0, 3), (104.1, 3), (150.0, 3), (164.0, 3), (170.0, 2), (171.0, 2)):
        told.finishing.say(told.agents[:there], now)
        lines.append(told.finishing.at_work)
    first = "agent 0 at work behind the loop, no word from agents 1, 2 since the stop; at most "
    assert lines[:1] == [""]
    assert lines[1:4] == 3 * [f"{first}3m16s more"]
    assert lines[4] == f"{first}2m16s more"
    assert lines[5:] == 2 * ["agent 0 at work behind the loop, no word from agent 1 since the stop; at most 2m10s more"]


def test_a_stop_that_may_not_have_been_heard_is_said_again_while_it_makes_a_difference() -> None:
    told = Told()
    told.finishing.unheard(101.0)
    assert [told.finishing.due_again(now) for now in (101.9, 102.0)] == [False, True]
    told.finishing.tell(told.agents, STOP, 102.0)
    assert not told.finishing.due_again(103.5)
    assert told.waiting(160.0) == [], "the time counts from the first"
    told.finishing.unheard(104.5)
    assert not told.finishing.due_again(110.0)


@pytest.mark.parametrize("event", [said(7, "left"), AgentProgress(0, 3, 1, 1, 0.0, 0.0, {}, [], "overrun")])
def test_what_others_say_changes_nothing(event: Any) -> None:
    told = Told()
    told.finishing.progress(event, 105.0)
    told.finishing.ended(event.id, "died")
    assert told.waiting(105.0) == [0, 1, 2]
