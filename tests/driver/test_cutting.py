"""An "auto" number of shards: what the reading of x_0 decides, and how the model is cut anew before the first step."""

from __future__ import annotations

from typing import Any

import pytest

from mpca.driver.cutting import ENOUGH, Cutting
from mpca.driver.events import AgentDied, ExecutorLost, ExecutorReady, OrderFailed, StopRequested, Tick
from mpca.driver.instructions import CutJoint, StartAgent
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import Answer, Cut
from tests.driver.support import E0, E1, Machine, hello, kinds, order_of, progress, written

MODEL = 24  # bytes


def answers(*seconds: tuple[float, float]) -> list[Answer]:
    return [Answer(f"e{n}", "host", [], {}, 0.0, *times, 8, 8) for n, times in enumerate(seconds)]


def test_orders_that_carry_nothing_tell_the_fixed_seconds_and_sums_those_of_the_wire() -> None:
    cutting = Cutting()
    for seconds in (0.9, 0.6, 0.3, *[0.125] * (ENOUGH - 4)):  # the first ones have loaded classes
        cutting.empty(seconds)
        assert not cutting.knows
    cutting.empty(0.1)
    assert cutting.knows
    cutting.brought(answers((10.0, 13.0), (11.0, 12.0)), 8)
    cutting.brought(answers((20.03125, 20.0625), (20.0, 20.03125), (0.0, 0.0)), 8)  # the third had no range of it
    # 1/16 s for 8 bytes: a model of 24 bytes takes 3/16 s one way
    assert cutting.decide(MODEL) == {"shards": 6, "period_s": 6 * 0.125 + 0.375, "fixed_s": 0.125, "wire_s": 0.375}


def test_a_model_of_no_bytes_has_three_shards() -> None:
    cutting = Cutting()
    cutting.empty(0.1)
    cutting.brought(answers((1.0, 1.5)), 0)
    assert cutting.decide(0) == {"shards": 3, "period_s": pytest.approx(0.3), "fixed_s": 0.1, "wire_s": 0.0}


def read(machine: Machine, seconds: float, out: list[Any] | None = None) -> list[Any]:
    """x_0 is read, a shard in so many seconds; an order that carries nothing takes one. What follows."""
    out = machine.started() if out is None else out
    while order_of(out).description.startswith(("read", "measure")):
        order = order_of(out)
        out = machine.run(machine.done(order, tau=0, seconds=1.0 if order.reduce is None else 2 * seconds))
    return out


def cut(shards: int = 6, agents: list[AgentRef] | None = None) -> Cut:
    return Cut(shards, [E0, E1] if agents is None else agents)


def test_an_order_that_measures_does_nothing_and_a_failed_one_is_sent_again() -> None:
    machine = Machine(auto_shards=True)
    out = machine.started()
    while order_of(out).description.startswith("read"):
        out = machine.run(machine.done(order_of(out), tau=0, seconds=0.25))
    for n in range(ENOUGH - 3):  # three freezes carried nothing either
        order = order_of(out)
        assert (order.executors, order.cycle, order.begin, order.downloads) == (["e0", "e1"], -1, [], [])
        assert order.freeze is order.reduce is order.cut is None
        if n == 0:
            machine.run(OrderFailed(order.order, "e1", "the task was lost"))
            order = order_of(machine.tell(Tick(), at=machine.now + 5.0))
        out = machine.run(machine.done(order, seconds=1.0))
    assert order_of(out).description == "begin"


def test_three_shards_that_are_enough_stay_and_the_record_says_why() -> None:
    machine = Machine(auto_shards=True)
    out = read(machine, seconds=0.125)
    assert (order_of(out).description, order_of(out).cut, order_of(out).begin) == ("begin", None, [E0, E1])
    machine.run(machine.done(order_of(out)))
    machine.run(progress(0))
    out = machine.run(progress(1))
    assert written(out, "begin") == [{"agents": 2, "shards": 3, "period_s": 3.75, "fixed_s": 1.0, "wire_s": 0.75}]


def test_a_number_in_the_configuration_is_not_looked_at() -> None:
    machine = Machine()
    out = read(machine, seconds=100.0)
    assert order_of(out).description == "begin"
    machine.run(machine.done(order_of(out)))
    machine.run(progress(0))
    assert written(machine.run(progress(1)), "begin") == [{"agents": 2}]


def test_more_shards_are_told_to_all_who_said_hello_and_they_begin_when_they_have_done_so_again() -> None:
    machine = Machine(auto_shards=True)
    out = read(machine, seconds=0.5)
    assert kinds(out)[-2:] == ["CutJoint", "SubmitOrder"]
    order = order_of(out)
    assert (order.cut, order.executors, order.begin, order.freeze, order.reduce) == (cut(), ["e0", "e1"], [], None, None)
    assert machine.machine.state == "STARTING"
    assert machine.run(hello(0, shards=6)) == [], "it is no new process, and no second record says that it has started"
    assert machine.run(machine.done(order)) == []
    out = machine.run(hello(1, shards=6))
    assert (order_of(out).description, order_of(out).begin) == ("begin", [E0, E1])
    machine.run(machine.done(order_of(out)))
    machine.run(progress(0))
    out = machine.run(progress(1))
    assert written(out, "begin") == [{"agents": 2, "shards": 6, "period_s": 9.0, "fixed_s": 1.0, "wire_s": 3.0}]
    for n in range(8):  # each shard in its turn
        while order_of(out).reduce is None:
            out = machine.cycle(out)
        assert (order_of(out).reduce.cycle, order_of(out).reduce.shard) == (n, n % 6)
        out = machine.cycle(out)


def test_an_agent_with_another_x0_takes_the_joint_model_in_the_new_shards() -> None:
    machine = Machine(auto_shards=True)
    machine.run(ExecutorReady("e0", "host0", 2))
    machine.run(ExecutorReady("e1", "host1", 2))
    machine.run(hello(0))
    out = read(machine, 0.5, machine.run(hello(1, x0="another")))
    machine.run(machine.done(order_of(out)))
    machine.run(hello(1, x0="another", shards=6))
    order = order_of(machine.run(hello(0, shards=6)))
    assert order.begin == [E0]
    assert [(one.shard, one.agents) for one in order.downloads] == [(shard, [E1]) for shard in range(6)]


def test_a_cut_whose_order_failed_is_told_again_to_those_who_have_not_said_hello() -> None:
    machine = Machine(auto_shards=True)
    out = read(machine, seconds=0.5)
    machine.run(hello(0, shards=6))
    machine.run(OrderFailed(order_of(out).order, "e1", "the task was lost"))
    out = machine.tell(Tick(), at=machine.now + 5.0)
    assert order_of(out).cut == cut(agents=[E1])
    machine.run(machine.done(order_of(out)))
    assert order_of(machine.run(hello(1, shards=6))).begin == [E0, E1]


def test_an_agent_that_dies_while_it_cuts_is_started_with_the_new_number() -> None:
    machine = Machine(auto_shards=True)
    out = read(machine, seconds=0.5)
    assert [one for one in out if isinstance(one, CutJoint)] == [CutJoint(6)], "before any agent is started anew"
    machine.run(machine.done(order_of(out)))
    machine.run(hello(1, shards=6))
    assert StartAgent(AgentRef("e0", 0, 1)) in machine.run(AgentDied("e0", 0, 0, 100, 137, ""))
    assert order_of(machine.run(hello(0, 1, shards=6))).begin == [AgentRef("e0", 0, 1), E1]


def test_all_agents_may_die_while_they_cut_since_the_driver_knows_x0() -> None:
    machine = Machine(auto_shards=True)
    machine.run(machine.done(order_of(read(machine, seconds=0.5))))
    for agent in (0, 1):
        machine.run(AgentDied(f"e{agent}", agent, 0, 100, 137, ""))
    machine.run(hello(0, 1, x0="another", shards=6))
    order = order_of(machine.run(hello(1, 1, shards=6)))
    assert order.begin == [AgentRef("e1", 1, 1)]
    assert {who for one in order.downloads for who in one.agents} == {AgentRef("e0", 0, 1)}


def test_an_executor_that_is_lost_while_its_agent_cuts_is_not_asked_again() -> None:
    machine = Machine(auto_shards=True)
    order = order_of(read(machine, seconds=0.5))
    out = machine.run(ExecutorLost("e1", "exited"))
    assert kinds(out)[-1] == "CancelOrder"
    again = order_of(machine.run(OrderFailed(order.order, None, "cancelled", ["e1"])))
    assert (again.cut, again.executors) == (cut(agents=[E0]), ["e0"])


def test_an_agent_that_had_not_said_hello_by_then_is_started_anew() -> None:
    machine = Machine(auto_shards=True, agents=3)
    for executor in ("e0", "e1", "e2"):
        machine.run(ExecutorReady(executor, "host", 2))
    machine.run(hello(0))
    machine.run(hello(1))
    out = read(machine, 0.5, machine.tell(Tick(), at=60.0))
    assert [one for one in out if isinstance(one, StartAgent)] == [StartAgent(AgentRef("e2", 2, 1))]
    assert order_of(out).cut == cut()
    machine.run(machine.done(order_of(out)))
    assert machine.run(hello(2)) == [], "its old process speaks of the old shards"
    machine.run(hello(0, shards=6))
    assert machine.run(hello(1, shards=6)) == [], "the time for the start counts from the cut"
    assert order_of(machine.tell(Tick(), at=120.0)).begin == [E0, E1]


def test_a_run_that_is_stopped_while_it_cuts_ends() -> None:
    machine = Machine(auto_shards=True)
    order = order_of(read(machine, seconds=0.5))
    machine.run(StopRequested("interrupted", "SIGINT"))
    machine.run(machine.done(order))
    assert machine.machine.ended is not None
    assert (machine.machine.state, machine.machine.ended.status) == ("CLOSED", "interrupted")


def test_the_source_may_die_while_orders_are_measured_since_x0_is_known_and_all_may() -> None:
    machine = Machine(auto_shards=True)
    out = machine.started()
    while order_of(out).description.startswith("read"):
        out = machine.run(machine.done(order_of(out), tau=0, seconds=0.25))
    for agent in (0, 1):
        machine.run(AgentDied(f"e{agent}", agent, 0, 100, 137, ""))
    assert machine.run(machine.done(order_of(out), seconds=1.0)) == [], "nobody is there to be measured"
    assert machine.machine.state == "READING"
    out = machine.run(hello(1, 1))
    assert order_of(out).description.startswith("measure")
    machine.run(hello(0, 1, x0="another"))
    out = read(machine, 0.125, out)
    assert order_of(out).description == "begin", "three shards are enough for these seconds"
    assert order_of(out).begin == [AgentRef("e1", 1, 1)]
    assert {who for one in order_of(out).downloads for who in one.agents} == {AgentRef("e0", 0, 1)}
