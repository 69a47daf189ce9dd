"""Snapshots that are not finite, or moved too far: they never enter, and what becomes of their agents."""

from __future__ import annotations

from mpca.driver.instructions import StartAgent, SubmitOrder
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import Freeze, Part, Reduce
from tests.driver.support import E0, E1, E2, Machine, order_of, reducing, written


def test_what_is_not_finite_never_enters_and_its_agent_takes_the_joint_model() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.nan = {1}
    out = machine.run(machine.done(order_of(out)))
    order = order_of(out)
    assert order.reduce == Reduce(1, 1, 8, [Part("e0", 4.0)])
    assert [(one.mode, one.agents) for one in order.downloads] == [("replace", [E1])] * 3
    machine.nan = set()
    out = machine.cycle([SubmitOrder(order)])
    assert written(out)[0]["left_out"] == {1: "not finite"}
    assert order_of(out).begin == [E1]
    assert order_of(machine.cycle(out)).freeze.agents == [E0, E1]


def test_what_moved_beyond_the_norm_limit_never_enters_and_its_agent_takes_the_joint_model() -> None:
    machine = Machine(agents=3, norm_limit=10.0)
    out = reducing(machine)
    machine.moved = {1: 1e30}
    out = machine.run(machine.done(order_of(out)))
    order = order_of(out)
    assert order.reduce == Reduce(1, 1, 8, [Part("e0", 4.0), Part("e2", 4.0)])
    assert [(one.mode, one.agents) for one in order.downloads] == [("replace", [E1])] * 3
    machine.moved = {}
    out = machine.cycle([SubmitOrder(order)])
    (line,) = written(out)
    assert set(line["contributors"]) == {0, 2}
    assert line["left_out"] == {
        1: "norm limit: it moved 1e+30 in 4 updates, 1e+30 times the 1 that the others moved in 4; cluster.norm_limit=10"
    }
    assert order_of(out).begin == [E1]
    assert order_of(machine.cycle(out)).freeze.agents == [E0, E1, E2]


def test_the_norm_limit_holds_from_the_first_cycle_on() -> None:
    machine = Machine(agents=4, norm_limit=10.0)
    out = machine.training()
    assert order_of(out).freeze.cycle == 0
    machine.moved = {1: 1e30}
    assert [part.executor for part in order_of(machine.cycle(out)).reduce.parts] == ["e0", "e2", "e3"]


def test_a_part_that_holds_what_is_beyond_the_norm_limit_is_made_again_without_it() -> None:
    machine = Machine(agents=4, norm_limit=10.0, per_executor=2)
    places = [AgentRef("e0", 0, 0), AgentRef("e0", 1, 0), AgentRef("e1", 2, 0), AgentRef("e1", 3, 0)]
    out = reducing(machine)
    assert order_of(out).reduce.parts == [Part("e0", 8.0), Part("e1", 8.0)]
    machine.moved = {1: 1e30}
    order = order_of(machine.run(machine.done(order_of(out))))
    assert (order.reduce, order.freeze) == (None, Freeze(1, 1, [places[0], *places[2:]]))
    out = machine.run(machine.done(order))
    for ack in machine.acks(order):
        out += machine.run(ack)
    order = order_of(out)
    assert order.reduce == Reduce(1, 1, 8, [Part("e0", 4.0), Part("e1", 8.0)])
    (line,) = written(machine.cycle(out))
    assert set(line["contributors"]) == {0, 2, 3}
    assert line["left_out"][1].startswith("norm limit: ")


def test_a_cycle_that_lost_too_many_to_the_norm_limit_gives_its_number_up() -> None:
    machine = Machine(agents=3, min_agents=3, norm_limit=10.0)
    out = reducing(machine)
    machine.moved = {1: 1e30}
    out = machine.run(machine.done(order_of(out)))
    machine.moved = {}
    order = order_of(out)
    machine.run(machine.done(order))
    for ack in machine.acks(order):
        out = machine.run(ack)
    out = machine.run(machine.done(order_of(out)))  # it begins
    assert order_of(out).freeze == Freeze(2, 2, [E0, E1, E2])


def test_an_agent_that_is_ruined_again_and_again_is_started_anew() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.nan = {1}  # after every joint model that it takes
    asked = 0
    while not any(isinstance(one, StartAgent) for one in out):
        freeze = order_of(out).freeze
        asked += freeze is not None and E1 in freeze.agents
        out = machine.cycle(out)
    assert asked == 3
    assert [one.who.incarnation for one in out if isinstance(one, StartAgent)] == [1]
    (lost,) = written(out, "agent")
    assert (lost["event"], lost["index"], lost["incarnation"]) == ("lost", 1, 0)
    assert lost["reason"] == "its parameters were not finite 3 times within 10 exchanges"


def test_when_no_agent_is_finite_the_run_ends_with_the_last_joint_model() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.nan = {0, 1}
    machine.run(machine.done(order_of(out)))
    ending = machine.machine.run.ending
    assert (ending.status, ending.final) == ("failed", True)
    assert (
        "all 2 agents are not finite in cycle 1: training diverged; it was so from the first steps on: look at" in ending.reason
    )
    assert "optimizer.lr" in ending.reason


def test_when_no_agent_is_finite_much_later_the_data_are_not_to_blame() -> None:
    machine = Machine()
    out = reducing(machine)
    for _ in range(3):
        out = machine.cycle(out)
    machine.nan = {0, 1}
    machine.run(machine.done(order_of(out)))
    ending = machine.machine.run.ending
    assert "training diverged; lower optimizer.lr" in ending.reason


def test_a_cycle_whose_yields_are_spoilt_gives_its_number_up() -> None:
    machine = Machine(agents=2, min_agents=2)
    out = reducing(machine)
    machine.nan = {1}
    out = machine.run(machine.done(order_of(out)))
    machine.nan = set()
    order = order_of(out)
    machine.run(machine.done(order))
    for ack in machine.acks(order):
        out = machine.run(ack)
    assert order_of(out).description == "begin"
    out = machine.run(machine.done(order_of(out)))
    assert order_of(out).freeze == Freeze(2, 2, [E0, E1])
