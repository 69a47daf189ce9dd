"""Who is asked whether its agents live, and what the answer means, by event lists."""

from __future__ import annotations

from mpca.driver.events import AgentBack, AgentsFound, ExecutorDamages, ExecutorLost, HoldEnded, Tick
from mpca.driver.instructions import Rediscover, StartAgent
from mpca.driver.states import AgentState
from mpca.timeouts import BARRED_S
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import Rediscovered
from tests.driver.support import Machine


def test_a_lost_executor_has_those_asked_about_whom_something_is_open_and_no_others() -> None:
    machine = Machine(agents=4)
    machine.cycle(machine.training())
    assert machine.run(HoldEnded(1, 0, "cancelled")) == [Rediscover(["e1"])]
    assert Rediscover(["e1"]) in machine.run(ExecutorLost("e2", "exit code 137"))
    machine.run(AgentsFound("e1", [Rediscovered(1, 0, 101)]))
    assert not [one for one in machine.run(ExecutorLost("e3", "exit code 137")) if isinstance(one, Rediscover)]


def test_a_question_that_nobody_answers_is_asked_again() -> None:
    machine = Machine()
    machine.cycle(machine.training())
    machine.run(HoldEnded(1, 0, "cancelled"))
    assert Rediscover(["e1"]) in machine.tell(Tick(), at=6.0)
    machine.run(AgentsFound("e1", [Rediscovered(1, 0, 101)]))
    assert not [one for one in machine.tell(Tick(), at=12.0) if isinstance(one, Rediscover)]


def test_only_who_lost_its_holding_job_is_held_again() -> None:
    machine = Machine()
    machine.cycle(machine.training())
    assert machine.run(HoldEnded(1, 0, "cancelled")) == [Rediscover(["e1"])]
    assert machine.run(AgentsFound("e0", [Rediscovered(0, 0, 100)])) == [], "who is well is left alone"
    found = AgentsFound("e1", [Rediscovered(1, 0, 101)])
    out = machine.run(found)
    assert [one for one in out if isinstance(one, StartAgent)] == [StartAgent(AgentRef("e1", 1, 0))]
    assert machine.run(found) == []


def test_an_agent_whose_holding_job_ended_and_that_is_nowhere_is_started_again() -> None:
    machine = Machine()
    machine.cycle(machine.training())
    machine.run(HoldEnded(1, 0, "failed"))
    assert machine.run(AgentsFound("e0", [Rediscovered(0, 0, 100)])) == [], "another executor cannot tell"
    assert StartAgent(AgentRef("e1", 1, 1)) in machine.run(AgentsFound("e1", []))


def test_an_executor_that_damages_bytes_is_asked_again_after_its_time_and_not_before() -> None:
    machine = Machine(agents=3)
    machine.cycle(machine.training())
    machine.run(ExecutorDamages("e1", "executor e1 damages bytes: piece 7"))
    asked = [Rediscover(["e1"]) in machine.tell(Tick(), at=at) for at in (6.0, 300.0, BARRED_S - 1)]
    assert asked == [False, False, False]
    for early in (AgentBack("e1", 1, 0), AgentsFound("e1", [Rediscovered(1, 0, 101)])):
        machine.run(early)
        assert machine.machine.run.table.agents[1].state == AgentState.LATE
    assert Rediscover(["e1"]) in machine.tell(Tick(), at=BARRED_S + 6)
    machine.run(AgentsFound("e1", [Rediscovered(1, 0, 101)]))
    assert machine.machine.run.table.agents[1].state == AgentState.ACTIVE


def test_a_living_agent_on_it_whose_holding_job_ends_is_not_taken_for_dead() -> None:
    machine = Machine(agents=3)
    machine.cycle(machine.training())
    machine.run(ExecutorDamages("e1", "executor e1 damages bytes: piece 7"))
    assert machine.run(HoldEnded(1, 0, "cancelled")) == [Rediscover(["e1"])]
    out = machine.run(AgentsFound("e1", [Rediscovered(1, 0, 101)]))
    assert [one for one in out if isinstance(one, StartAgent)] == [StartAgent(AgentRef("e1", 1, 0))]
    assert machine.machine.run.table.agents[1].state == AgentState.LATE
