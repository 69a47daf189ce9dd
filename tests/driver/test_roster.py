"""Who is started where, and what becomes of a place whose agents die."""

from __future__ import annotations

from mpca.driver.instructions import StartAgent
from mpca.driver.roster import ABSENT, ACTIVE, BEGUN, FINISHED, JOINING, LATE, READY, STARTING, Roster


def starts(out: list) -> list[StartAgent]:
    return [one for one in out if isinstance(one, StartAgent)]


def test_two_cores_are_a_place() -> None:
    roster = Roster(wanted=4, per_executor=4)
    assert starts(roster.executor_ready("a", "h", 5, 0.0)) == [StartAgent(0, 0, "a"), StartAgent(1, 0, "a")]


def test_per_executor_bounds_the_places() -> None:
    roster = Roster(wanted=4, per_executor=1)
    assert starts(roster.executor_ready("a", "h", 16, 0.0)) == [StartAgent(0, 0, "a")]


def test_an_executor_is_ready_once() -> None:
    roster = Roster(wanted=4, per_executor=1)
    roster.executor_ready("a", "h", 2, 0.0)
    assert roster.executor_ready("a", "h", 2, 0.0) == []


def test_one_that_died_is_started_again_at_its_place() -> None:
    roster = Roster(wanted=2, per_executor=1)
    roster.executor_ready("a", "h", 2, 0.0)
    roster.executor_ready("b", "h", 2, 0.0)
    assert starts(roster.died(1, 0, "exit code 137", 1.0)) == [StartAgent(1, 1, "b")]


def test_one_whose_executor_is_gone_is_started_at_any_free_place() -> None:
    roster = Roster(wanted=2, per_executor=1)
    for name in "abc":
        roster.executor_ready(name, "h", 2, 0.0)
    assert starts(roster.executor_lost("a", "exit code 1", 1.0)) == [StartAgent(0, 1, "c")]


def test_the_third_death_in_ten_minutes_quarantines_the_place_for_ten() -> None:
    roster = Roster(wanted=1, per_executor=1)
    roster.executor_ready("a", "h", 2, 0.0)
    assert starts(roster.died(0, 0, "x", 100.0)) == [StartAgent(0, 1, "a")]
    assert starts(roster.died(0, 1, "x", 200.0)) == [StartAgent(0, 2, "a")]
    assert starts(roster.died(0, 2, "x", 300.0)) == []
    assert roster.fill(899.9) == []
    assert starts(roster.fill(900.0)) == [StartAgent(0, 3, "a")]


def test_deaths_far_apart_do_not_add_up() -> None:
    roster = Roster(wanted=1, per_executor=1)
    roster.executor_ready("a", "h", 2, 0.0)
    for number, now in enumerate((0.0, 400.0, 800.0, 1200.0)):
        assert starts(roster.died(0, number, "x", now)) == [StartAgent(0, number + 1, "a")]


def test_preemption_again_and_again_on_one_host_is_no_death_of_a_place() -> None:
    """YARN takes the container twenty times, and once the agent's end is heard of before the executor's."""
    roster = Roster(wanted=1, per_executor=1)
    roster.executor_ready("0", "h", 2, 0.0)
    for number in range(20):
        now = 10.0 * number
        if number == 7:
            assert starts(roster.died(0, 7, "exit code 143", now)) == [StartAgent(0, 8, "7")]
        incarnation = number + (number >= 7)
        (lost,) = roster.executor_lost(str(number), "Container c on host: h was preempted.", now)
        assert lost.fields["reason"] == f"executor {number} lost: Container c on host: h was preempted."
        assert roster.fill(now) == [], "nowhere else to be"
        assert starts(roster.executor_ready(str(number + 1), "h", 2, now + 5.0)) == [
            StartAgent(0, incarnation + 1, str(number + 1))
        ]
    assert roster.lost == 21


def test_an_older_incarnation_is_not_found() -> None:
    roster = Roster(wanted=1, per_executor=1)
    roster.executor_ready("a", "h", 2, 0.0)
    roster.died(0, 0, "x", 1.0)
    assert roster.find(0, 0) is None
    assert roster.find(0, 1) is roster.agents[0]
    assert roster.find(5, 0) is None
    assert roster.died(0, 0, "x", 2.0) == []


def test_states_of_an_agent_from_start_to_finish() -> None:
    roster = Roster(wanted=1, per_executor=1)
    agent = roster.agents[0]
    seen = [agent.state]
    roster.executor_ready("a", "h", 2, 0.0)
    seen.append(agent.state)
    roster.hello(0, 0, "h", 7, 1.0)
    seen.append(agent.state)
    roster.move(agent, READY, 2.0, "it has the joint model")
    roster.move(agent, BEGUN, 3.0, "begin")
    seen.append(agent.state)
    roster.trains(0, 0, 4.0)
    seen.append(agent.state)
    roster.late(0, 0, "stopped", 5.0)
    seen.append(agent.state)
    roster.back(0, 0, 6.0, "it answered again")
    roster.finished(0, 0, 7.0)
    seen.append(agent.state)
    assert seen == [ABSENT, STARTING, JOINING, BEGUN, ACTIVE, LATE, FINISHED]


def test_who_steps_before_begin_is_known_of_is_active() -> None:
    """The order that said begin failed after the agent had heard it."""
    roster = Roster(wanted=1, per_executor=1)
    roster.executor_ready("a", "h", 2, 0.0)
    roster.hello(0, 0, "h", 7, 1.0)
    roster.move(roster.agents[0], READY, 2.0, "x_0 agreed")
    roster.trains(0, 0, 3.0)
    assert roster.agents[0].state == ACTIVE


def test_a_late_agent_that_dies_was_lost_once() -> None:
    roster = Roster(wanted=1, per_executor=1)
    roster.executor_ready("a", "h", 2, 0.0)
    roster.hello(0, 0, "h", 7, 1.0)
    roster.move(roster.agents[0], ACTIVE, 2.0, "first update")
    roster.late(0, 0, "stopped", 3.0)
    roster.died(0, 0, "exit code 137", 4.0)
    assert roster.lost == 1


def test_a_late_agent_whose_process_has_ended_is_told_of_by_its_death_alone() -> None:
    roster = Roster(wanted=1, per_executor=1)
    roster.executor_ready("a", "h", 2, 0.0)
    roster.hello(0, 0, "h", 7, 1.0)
    roster.move(roster.agents[0], ACTIVE, 2.0, "first update")
    assert roster.late(0, 0, "died before it handed over", 3.0, gone=True) == []
    assert (roster.agents[0].state, roster.lost) == (LATE, 0)
    lost, *_ = roster.died(0, 0, "exit code 137", 4.0)
    assert (lost.fields["event"], lost.fields["reason"], roster.lost) == ("lost", "exit code 137", 1)


def test_who_has_finished_is_not_taken_hold_of_again() -> None:
    roster = Roster(wanted=1, per_executor=1)
    roster.executor_ready("a", "h", 2, 0.0)
    roster.hello(0, 0, "h", 7, 1.0)
    assert starts(roster.hold_again(0, 0, "a")) == [StartAgent(0, 0, "a")]
    roster.finished(0, 0, 2.0)
    assert roster.hold_again(0, 0, "a") == []
