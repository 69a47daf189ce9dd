"""What the ledger's line says of a cycle: who was left out and why, beta and gamma, and what was summed at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mpca.driver.events import AgentDied, ExecutorLost, ExecutorReady, OrderDone, OrderFailed, Tick
from mpca.driver.instructions import Prepare, SubmitOrder
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import Answer, Part
from tests.driver.support import Machine, hello, order_of, progress, written

LATE = "no answer before the deadline"


def lines_of(machine: Machine, out: list[Any], count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < count:
        out = machine.cycle(out)
        found += written(out)
    return found


# ---- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phases", [1, 2, 3])
def test_beta_and_gamma_are_of_the_version_that_the_cycle_made(phases: int) -> None:
    """Three shards: cycle 7 is the third exchange of shard 1, and makes its version 3."""
    machine = Machine(phases=phases, numbers=lambda version: (1 / version, 10.0 * version))
    lines = lines_of(machine, machine.training(), 12)
    assert [line["shard"] for line in lines] == [0, 1, 2] * 4
    assert [line["gamma"] for line in lines] == [10.0] * 3 + [20.0] * 3 + [30.0] * 3 + [40.0] * 3
    assert [line["beta"] for line in lines] == [1.0] * 3 + [1 / 2] * 3 + [1 / 3] * 3 + [1 / 4] * 3
    assert {line["alpha"] for line in lines} == {0.0}, "none was asked for"


# ---- who was left out ------------------------------------------------------------------------------------------------


def test_who_was_left_out_already_keeps_its_own_reason_when_an_executor_is_lost() -> None:
    machine = Machine(agents=3)
    out = machine.cycle(machine.training())
    machine.late = {2: LATE}
    order = order_of(machine.run(machine.done(order_of(out))))
    machine.run(ExecutorLost("e1", "exit code 137"))
    (line,) = lines_of(machine, machine.run(OrderFailed(order.order, "e1", "lost", ["e1"])), 1)
    assert list(line["contributors"]) == [0]
    assert line["left_out"] == {1: "executor e1 lost", 2: LATE}


def test_who_handed_over_on_an_executor_that_is_lost_before_the_order_ends_is_left_out_with_the_reason() -> None:
    """Its task had ended, so the order ends well, but the bytes are gone."""
    machine = Machine(agents=3)
    order = order_of(machine.cycle(machine.training()))
    assert machine.run(ExecutorLost("e1", "exit code 137")) != []
    out = machine.run(machine.done(order))
    (line,) = written(out)
    assert list(line["contributors"]) == [0, 1, 2], "what cycle 0 summed had been there"
    (line,) = lines_of(machine, out, 1)
    assert list(line["contributors"]) == [0, 2]
    assert line["left_out"] == {1: "absent: executor e1 lost: exit code 137"}


def test_an_agent_that_never_had_a_place_is_left_out_of_every_cycle() -> None:
    machine = Machine(agents=3, min_agents=2)
    for executor in ("e0", "e1"):
        machine.run(ExecutorReady(executor, "host", 2))
    for agent in (0, 1):
        machine.run(hello(agent))
    machine.now = 60.0
    out = machine.run(Tick())
    while order_of(out).description != "begin":
        out = machine.run(machine.done(order_of(out), tau=0))
    machine.run(machine.done(order_of(out)))
    for agent in (0, 1):
        out = machine.run(progress(agent))
    for line in lines_of(machine, out, 4):
        assert line["left_out"] == {2: "absent: no executor has room for it"}


# ---- what is summed --------------------------------------------------------------------------------------------------


def idle(machine: Machine, order: Any, agents: set[int]) -> OrderDone:
    """The answer to an order where these agents, each alone on its executor, have taken no update."""
    done = machine.done(order)

    def still(answer: Answer) -> Answer:
        if not {one.agent for one in answer.frozen} & agents:
            return answer
        return replace(answer, frozen=[replace(one, tau=0) for one in answer.frozen], weight=0.0)

    return replace(done, answers=[still(one) for one in done.answers])


def test_a_part_whose_agents_took_no_update_is_in_no_sum() -> None:
    machine = Machine(agents=3)
    order = order_of(machine.cycle(machine.training()))
    out = machine.run(idle(machine, order, {1}))
    assert order_of(out).reduce.parts == [Part("e0", 4.0), Part("e2", 4.0)]
    (line,) = lines_of(machine, out, 1)
    assert {agent: one["tau"] for agent, one in line["contributors"].items()} == {0: 4, 1: 0, 2: 4}


def test_where_nobody_took_an_update_nothing_is_summed_and_nothing_moves() -> None:
    machine = Machine(agents=2, phases=2)
    out = machine.run(idle(machine, order_of(machine.training()), {0, 1}))
    assert order_of(out).reduce is None
    out = machine.run(machine.done(order_of(out)))
    assert [one for one in out if isinstance(one, Prepare)] == []
    assert order_of(out).reduce.parts == [Part("e0", 4.0), Part("e1", 4.0)], "the next cycle"


# ---- beginning ---------------------------------------------------------------------------------------------------------


def test_begin_is_said_to_who_is_ready_and_brings_nobody_else_in() -> None:
    machine = Machine(agents=4)
    machine.late = {2: LATE}
    out = machine.cycle(machine.training())
    machine.run(AgentDied("e1", 1, 0, 101, 137, ""))
    machine.run(hello(1, incarnation=1))
    out = machine.run(machine.done(order_of(out)))
    order = order_of(out)
    machine.run(AgentDied("e3", 3, 0, 103, 137, ""))
    machine.run(hello(3, incarnation=1))  # too late for the joint model that is on its way to agent 1
    first = order_of(machine.cycle([SubmitOrder(order)]))
    assert first.begin == [AgentRef("e1", 1, 1)]
    assert [one.agents for one in first.downloads if one.mode == "replace"] == [[AgentRef("e3", 3, 1)]] * 3
    second = order_of(machine.cycle([SubmitOrder(first)]))
    assert second.begin == [AgentRef("e3", 3, 1)]
    assert second.freeze.agents == [AgentRef("e0", 0, 0)], "agent 2 is late still, 1 and 3 have taken no update"


def test_how_an_agent_came_is_recorded_by_its_incarnation() -> None:
    machine = Machine()
    machine.run(ExecutorReady("e0", "host0", 2))
    assert written(machine.run(hello(0)), "agent")[0]["event"] == "started"
    machine.run(AgentDied("e0", 0, 0, 100, 137, ""))
    (again,) = written(machine.run(hello(0, incarnation=1)), "agent")
    assert (again["event"], again["incarnation"], again["executor_id"], again["pid"]) == ("replaced", 1, "e0", 100)
