"""Who is started where, and what becomes of an executor whose agents die."""

from __future__ import annotations

import random

import pytest

from mpca.driver.agent_table import AgentTable
from mpca.driver.instructions import StartAgent, Write
from mpca.driver.states import AgentState
from mpca.wire.agent_ref import AgentId, AgentRef


def starts(out: list) -> list[StartAgent]:
    return [one for one in out if isinstance(one, StartAgent)]


def active() -> AgentTable:
    """A table whose only agent has the joint model and has made its first step: it is ACTIVE."""
    table = AgentTable(wanted=1, per_executor=1)
    table.executor_ready("a", "h", 2, 0.0)
    table.hello(AgentId(0, 0), "h", 7, 1.0)
    table.move(table.agents[0], AgentState.READY, 2.0, "x_0 agreed")
    table.trains(AgentId(0, 0), 2.0)
    return table


def test_two_cores_are_a_place() -> None:
    table = AgentTable(wanted=4, per_executor=4)
    assert starts(table.executor_ready("a", "h", 5, 0.0)) == [StartAgent(AgentRef("a", 0, 0)), StartAgent(AgentRef("a", 1, 0))]


def test_per_executor_bounds_the_places() -> None:
    table = AgentTable(wanted=4, per_executor=1)
    assert starts(table.executor_ready("a", "h", 16, 0.0)) == [StartAgent(AgentRef("a", 0, 0))]


def test_an_executor_is_ready_once() -> None:
    table = AgentTable(wanted=4, per_executor=1)
    table.executor_ready("a", "h", 2, 0.0)
    assert table.executor_ready("a", "h", 2, 0.0) == []


def test_one_that_died_is_started_again_at_its_place() -> None:
    table = AgentTable(wanted=2, per_executor=1)
    table.executor_ready("a", "h", 2, 0.0)
    table.executor_ready("b", "h", 2, 0.0)
    assert starts(table.died(AgentId(1, 0), "exit code 137", 1.0)) == [StartAgent(AgentRef("b", 1, 1))]


def test_one_whose_executor_is_gone_is_started_at_any_free_place() -> None:
    table = AgentTable(wanted=2, per_executor=1)
    for name in "abc":
        table.executor_ready(name, "h", 2, 0.0)
    assert starts(table.executor_lost("a", "exit code 1", 1.0)) == [StartAgent(AgentRef("c", 0, 1))]


def test_the_third_death_in_ten_minutes_quarantines_the_place_for_ten() -> None:
    table = AgentTable(wanted=1, per_executor=1)
    table.executor_ready("a", "h", 2, 0.0)
    assert starts(table.died(AgentId(0, 0), "x", 100.0)) == [StartAgent(AgentRef("a", 0, 1))]
    assert starts(table.died(AgentId(0, 1), "x", 200.0)) == [StartAgent(AgentRef("a", 0, 2))]
    assert starts(table.died(AgentId(0, 2), "x", 300.0)) == []
    assert table.fill(899.9) == []
    assert starts(table.fill(900.0)) == [StartAgent(AgentRef("a", 0, 3))]


def test_deaths_far_apart_do_not_add_up() -> None:
    table = AgentTable(wanted=1, per_executor=1)
    table.executor_ready("a", "h", 2, 0.0)
    for number, now in enumerate((0.0, 400.0, 800.0, 1200.0)):
        assert starts(table.died(AgentId(0, number), "x", now)) == [StartAgent(AgentRef("a", 0, number + 1))]


def test_preemption_again_and_again_on_one_host_is_no_death_of_a_place() -> None:
    """YARN takes the container twenty times, and once the agent's end is heard of before the executor's."""
    table = AgentTable(wanted=1, per_executor=1)
    table.executor_ready("0", "h", 2, 0.0)
    for number in range(20):
        now = 10.0 * number
        if number == 7:
            assert starts(table.died(AgentId(0, 7), "exit code 143", now)) == [StartAgent(AgentRef("7", 0, 8))]
        incarnation = number + (number >= 7)
        (lost,) = table.executor_lost(str(number), "Container c on host: h was preempted.", now)
        assert lost.fields["reason"] == f"executor {number} lost: Container c on host: h was preempted."
        assert table.fill(now) == [], "nowhere else to be"
        assert starts(table.executor_ready(str(number + 1), "h", 2, now + 5.0)) == [
            StartAgent(AgentRef(str(number + 1), 0, incarnation + 1))
        ]
    assert table.lost == 21


def test_an_older_incarnation_is_not_found() -> None:
    table = AgentTable(wanted=1, per_executor=1)
    table.executor_ready("a", "h", 2, 0.0)
    table.died(AgentId(0, 0), "x", 1.0)
    assert table.find(AgentId(0, 0)) is None
    assert table.find(AgentId(0, 1)) is table.agents[0]
    assert table.find(AgentId(5, 0)) is None
    assert table.died(AgentId(0, 0), "x", 2.0) == []


def test_states_of_an_agent_from_start_to_finish() -> None:
    table = AgentTable(wanted=1, per_executor=1)
    agent = table.agents[0]
    seen = [agent.state]
    table.executor_ready("a", "h", 2, 0.0)
    seen.append(agent.state)
    table.hello(AgentId(0, 0), "h", 7, 1.0)
    seen.append(agent.state)
    table.move(agent, AgentState.READY, 2.0, "it has the joint model")
    table.move(agent, AgentState.BEGUN, 3.0, "begin")
    seen.append(agent.state)
    table.trains(AgentId(0, 0), 4.0)
    seen.append(agent.state)
    table.late(AgentId(0, 0), "stopped", 5.0)
    seen.append(agent.state)
    table.back(AgentId(0, 0), 6.0, "it answered again")
    table.finished(AgentId(0, 0), 7.0)
    seen.append(agent.state)
    assert seen == ["ABSENT", "STARTING", "JOINING", "BEGUN", "ACTIVE", "LATE", "FINISHED"]


def test_who_steps_before_begin_is_known_of_is_active() -> None:
    """The order that said begin failed after the agent had heard it: it was READY until its first step."""
    assert active().agents[0].state == AgentState.ACTIVE


def test_a_late_agent_that_dies_was_lost_once() -> None:
    table = active()
    table.late(AgentId(0, 0), "stopped", 3.0)
    (lost,) = table.given_up(AgentId(0, 0), "stopped")
    assert (lost.fields["event"], lost.fields["reason"]) == ("lost", "stopped")
    assert table.given_up(AgentId(0, 0), "stopped still") == []
    assert [one for one in table.died(AgentId(0, 0), "exit code 137", 4.0) if isinstance(one, Write)] == []
    assert table.lost == 1


def test_a_late_agent_that_was_not_given_up_was_never_lost() -> None:
    table = active()
    table.late(AgentId(0, 0), "slow", 3.0)
    assert table.back(AgentId(0, 0), 4.0, "it answered") == []
    assert table.given_up(AgentId(0, 0), "slow") == []
    assert (table.agents[0].state, table.lost) == (AgentState.ACTIVE, 0)


def test_a_late_agent_whose_process_has_ended_is_told_of_by_its_death_alone() -> None:
    table = active()
    table.late(AgentId(0, 0), "ended before it handed over", 3.0)
    assert (table.agents[0].state, table.lost) == (AgentState.LATE, 0)
    lost, *_ = table.died(AgentId(0, 0), "exit code 137", 4.0)
    assert (lost.fields["event"], lost.fields["reason"], table.lost) == ("lost", "exit code 137", 1)


def test_who_has_finished_is_not_taken_hold_of_again() -> None:
    table = AgentTable(wanted=1, per_executor=1)
    table.executor_ready("a", "h", 2, 0.0)
    table.hello(AgentId(0, 0), "h", 7, 1.0)
    assert starts(table.hold_again(AgentId(0, 0), "a")) == [StartAgent(AgentRef("a", 0, 0))]
    table.finished(AgentId(0, 0), 2.0)
    assert table.hold_again(AgentId(0, 0), "a") == []


def where(table: AgentTable, number: int, now: float) -> str | None:
    """Where an absent agent is to start by the rule itself: its own executor, else the emptiest, in order of arrival."""
    there = dict.fromkeys(table.executors, 0)
    for agent in table.agents:
        if agent.state not in (AgentState.ABSENT, AgentState.FINISHED) and agent.executor in there:
            there[agent.executor] += 1
    free = [one for one in table.executors.values() if one.quarantined_until <= now and there[one.name] < one.capacity]
    own = table.agents[number].executor
    best = min(free, key=lambda one: (one.name != own, there[one.name]), default=None)
    return best.name if best is not None else None


class Checked(AgentTable):
    """Compares each start with the rule."""

    started = 0

    def _start(self, agent, executor, now):
        absent = [one.index for one in self.agents if one.state == AgentState.ABSENT]
        if agent.state == AgentState.ABSENT:
            assert agent.index == min(absent)
            assert executor.name == where(self, agent.index, now)
        self.started += 1
        return super()._start(agent, executor, now)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_the_rule_says_who_starts_where(seed: int) -> None:
    chance, table, now, names = random.Random(seed), Checked(wanted=12, per_executor=3), 0.0, 0
    for _ in range(400):
        now += chance.choice([0.1, 1.0, 60.0])
        what, agent = chance.random(), chance.choice(table.agents)
        if what < 0.1 and len(table.executors) < 8:
            table.executor_ready(f"e{names}", "h", chance.choice([2, 3, 4, 8]), now)
            names += 1
        elif what < 0.15 and table.executors:
            table.executor_lost(chance.choice(sorted(table.executors)), "x", now, refill=chance.random() < 0.5)
        elif what < 0.6:
            table.died(agent.id, "x", now)
        elif what < 0.62:
            table.finished(agent.id, now)
        elif what < 0.8:
            table.hello(agent.id, "h", 1, now)
        else:
            table.fill(now)
        for state in AgentState:
            there = [one.index for one in table.agents if one.state == state]
            assert ([one.index for one in table.in_state(state)], table.count(state)) == (there, len(there))
        table.fill(now)
        for absent in table.in_state(AgentState.ABSENT):
            assert where(table, absent.index, now) is None
    assert table.started > 10
