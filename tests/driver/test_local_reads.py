"""Local tensors are read between two cycles from the lowest agent that trains; from one that leaves, before it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpca.driver.events import (
    AgentDied,
    AgentFinished,
    AgentHello,
    AgentProgress,
    ExecutorLost,
    ExecutorReady,
    OrderFailed,
    ReadLocal,
    StopRequested,
    Tick,
)
from mpca.driver.instructions import AdoptInitial, End
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import StopAgent
from tests.driver.support import Machine, hello, order_of, progress

PIECES = 2  # shards of local tensors behind the three of the model, of 3 and 1 words


def greeting(agent: int, incarnation: int = 0, edges: tuple[int, int] = (9, 10)) -> AgentHello:
    one = hello(agent, incarnation)
    local = {"n": ["int64", [], 8]}
    return replace(one, hello=replace(one.hello, bounds=[0, 2, 4, 6, *edges], local=local))


def leaving(agent: int) -> AgentProgress:
    return replace(progress(agent), function="returned")


def training(agents: int = 2, edges: tuple[int, int] = (9, 10), **shape) -> tuple[Machine, list]:
    """Up to the first freeze of the first cycle. `edges`: where the two shards of local tensors end, in words."""
    machine = Machine(agents, **shape)
    for agent in range(agents):
        machine.run(ExecutorReady(f"e{agent}", f"host{agent}", 2))
    out: list = []
    for agent in range(agents):
        out = machine.run(greeting(agent, edges=edges))
    return machine, out


def begun(agents: int = 2, **shape) -> tuple[Machine, list]:
    machine, out = training(agents, **shape)
    while order_of(out).description != "begin":
        out = machine.run(machine.done(order_of(out), tau=0))
    machine.run(machine.done(order_of(out)))
    for agent in range(agents):
        out = machine.run(progress(agent))
    return machine, out


def read(machine: Machine, out: list) -> tuple[list[tuple], list]:
    """Answer the orders of one read; what they asked for, and what came after the last."""
    seen = []
    while order_of(out).description.startswith(("freeze local", "read local")):
        order = order_of(out)
        if order.freeze is not None:
            seen.append(("freeze", order.freeze.shard, [one.agent for one in order.freeze.agents]))
            assert order.freeze.cycle < -5, "below those of the reading of x_0"
        else:
            assert order.reduce is not None
            (part,) = order.reduce.parts
            seen.append(("reduce", order.reduce.shard, order.reduce.length, part.executor, part.weight))
        out = machine.run(machine.done(order, tau=0))
    return seen, out


def of_agent(agent: int) -> list[tuple]:
    return [
        ("freeze", 3, [agent]), ("reduce", 3, 12, f"e{agent}", 1.0), ("freeze", 4, [agent]), ("reduce", 4, 4, f"e{agent}", 1.0),
    ]  # fmt: skip


def test_they_are_read_along_with_x0() -> None:
    machine, out = training()
    seen = []
    while order_of(out).description != "begin":
        order = order_of(out)
        if order.reduce is not None:
            seen.append((order.reduce.cycle, order.reduce.shard, order.reduce.length))
        out = machine.run(machine.done(order, tau=0))
    assert seen == [(-5, 0, 8), (-4, 1, 8), (-3, 2, 8), (-2, 3, 12), (-1, 4, 4)]


def test_asked_for_they_are_read_between_two_cycles_and_the_cycle_goes_on() -> None:
    machine, out = begun()
    machine.tell(ReadLocal())
    seen, out = read(machine, machine.run(machine.done(order_of(out))))
    assert seen == of_agent(0)
    assert order_of(out).description == "cycle 0: reduce shard 0", "what was frozen for it is not asked for again"
    assert machine.machine.run.local.ended == 1
    out = machine.cycle(out)
    assert order_of(out).description == "cycle 1: reduce shard 1", "once asked for, once read"


def test_another_agent_is_read_when_the_first_does_not_answer() -> None:
    machine, out = begun(3)
    machine.tell(ReadLocal())
    out = machine.run(machine.done(order_of(out)))
    assert order_of(out).freeze.agents == [AgentRef("e0", 0, 0)]
    machine.late = {0: "no answer before the deadline"}
    out = machine.run(machine.done(order_of(out)))
    seen, _ = read(machine, out)
    assert seen == of_agent(1)


def test_a_lost_executor_in_the_middle_begins_the_read_anew_elsewhere() -> None:
    machine, out = begun(3)
    machine.tell(ReadLocal())
    out = machine.run(machine.done(order_of(out)))
    out = machine.run(machine.done(order_of(out), tau=0))  # agent 0 has frozen its first shard
    order = order_of(out)
    assert order.reduce.shard == 3
    machine.run(ExecutorLost("e0", "killed"))
    seen, _ = read(machine, machine.run(OrderFailed(order.order, "e0", "executor e0 lost")))
    assert seen == of_agent(1)


def test_an_executor_that_stands_still_with_what_was_frozen_is_left_out_and_the_read_begins_anew_elsewhere() -> None:
    """As often as the order failed, it would fail again, and in the end the run."""
    machine, out = begun(3)
    machine.tell(ReadLocal())
    out = machine.run(machine.done(order_of(out)))
    order = order_of(machine.run(machine.done(order_of(out), tau=0)))
    assert order.reduce.shard == 3
    machine.run(OrderFailed(order.order, "e0", "deadline passed"))
    machine.now = 3.0  # after the grace for news of a lost executor
    seen, _ = read(machine, machine.run(Tick()))
    assert seen == of_agent(1)


def test_what_an_agent_handed_over_before_it_died_is_read_and_the_rest_from_another() -> None:
    """What was frozen is its executor's."""
    machine, out = begun(3)
    machine.tell(ReadLocal())
    order = order_of(machine.run(machine.done(order_of(out))))
    assert order.freeze.agents == [AgentRef("e0", 0, 0)]
    machine.run(AgentDied("e0", 0, 0, 100, 137, ""))
    out = machine.run(machine.done(order, tau=0))
    seen, _ = read(machine, out)
    assert seen == [("reduce", 3, 12, "e0", 1.0), *of_agent(1)]


def test_an_agent_that_died_before_it_handed_over_is_not_asked_again() -> None:
    machine, out = begun(3)
    machine.tell(ReadLocal())
    order = order_of(machine.run(machine.done(order_of(out))))
    machine.run(AgentDied("e0", 0, 0, 100, 137, ""))
    machine.run(OrderFailed(order.order, "e2", "a task failed"))
    machine.now = 3.0  # after the grace for news of a lost executor
    seen, _ = read(machine, machine.run(Tick()))
    assert seen == of_agent(1)


def test_only_what_an_order_has_summed_is_taken() -> None:
    machine, out = begun()
    machine.tell(ReadLocal())
    out = machine.run(machine.done(order_of(out)))
    summed, taken = [], [one for one in out if isinstance(one, AdoptInitial)]
    while order_of(out).description.startswith(("freeze local", "read local")):
        order = order_of(out)
        if order.reduce is not None:
            summed.append(AdoptInitial(order.order, order.reduce.shard, order.reduce.length))
        out = machine.run(machine.done(order, tau=0))
        taken += [one for one in out if isinstance(one, AdoptInitial)]
    assert [one.shard for one in summed] == [3, 4]
    assert taken == summed


def test_who_becomes_ready_before_a_read_is_told_to_begin_after_it() -> None:
    """No order of a read says begin."""
    machine, out = begun(3)
    out = machine.run(machine.done(order_of(out)))
    machine.run(AgentDied("e1", 1, 0, 101, 137, ""))
    machine.run(greeting(1, incarnation=1))
    out = machine.run(machine.done(order_of(out)))
    assert {who.agent for one in order_of(out).downloads for who in one.agents} == {1}
    machine.tell(ReadLocal())
    out = machine.cycle(out)
    begins = []
    while order_of(out).description.startswith(("freeze local", "read local")):
        begins += order_of(out).begin
        out = machine.run(machine.done(order_of(out), tau=0))
    assert begins == []
    assert machine.machine.run.local.ended == 1
    assert order_of(out).begin == [AgentRef("e1", 1, 1)]


def test_a_failed_order_of_a_read_is_asked_again_for_the_same_yield() -> None:
    machine, out = begun()
    machine.tell(ReadLocal())
    order = order_of(machine.run(machine.done(order_of(out))))
    machine.run(OrderFailed(order.order, "e1", "a task failed"))
    again = order_of(machine.tell(Tick(), at=3.0))  # after the grace for news of a lost executor
    assert (again.freeze.cycle, again.freeze.shard, again.freeze.agents) == (order.freeze.cycle, 3, [AgentRef("e0", 0, 0)])


def test_an_agent_that_leaves_is_read_and_then_let_go_and_others_only_let_go() -> None:
    machine, out = begun(2)
    machine.tell(leaving(1))
    out = machine.run(machine.done(order_of(out)))
    assert (order_of(out).stop, order_of(out).freeze) == ([StopAgent("e1", 1, 0, "its train function has returned")], None)
    out = machine.run(machine.done(order_of(out)))
    machine.tell(AgentFinished("e1", 1, 0, b""))
    machine.tell(leaving(0))
    seen, out = read(machine, machine.cycle(out))
    assert seen == of_agent(0)
    assert order_of(out).stop == [StopAgent("e0", 0, 0, "its train function has returned")]
    out = machine.run(machine.done(order_of(out)))
    machine.tell(AgentFinished("e0", 0, 0, b""))
    machine.cycle(out)
    assert machine.machine.ended == End("reached", "every train function returned")


def test_an_agent_that_was_read_for_a_backup_is_read_again_when_it_leaves() -> None:
    machine, out = begun(2)
    machine.tell(ReadLocal())
    _, out = read(machine, machine.run(machine.done(order_of(out))))
    machine.tell(leaving(0))
    seen, _ = read(machine, machine.cycle(out))
    assert seen == of_agent(0)


@pytest.mark.parametrize(("status", "answers_at", "read_whole"), [("max_time", 1.0, True), ("interrupted", 3.0, False)])
def test_the_end_of_a_run_reads_them_before_agents_are_stopped_but_not_for_ever(
    status: str, answers_at: float, read_whole: bool
) -> None:
    machine, out = begun()
    machine.tell(StopRequested(status, "enough"))
    out = machine.run(machine.done(order_of(out)))
    assert order_of(out).freeze.agents == [AgentRef("e0", 0, 0)]
    machine.now = answers_at
    late = machine.tell(Tick())
    if read_whole:
        seen, out = read(machine, out)
        assert seen == of_agent(0)
    else:
        out = late
    assert [one.agent for one in order_of(out).stop] == [0, 1]


@pytest.mark.parametrize(("status", "until"), [("max_time", 6.0), ("failed", 6.0), ("interrupted", 2.0)])
def test_the_last_read_has_two_seconds_and_those_that_its_bytes_take_and_a_person_who_interrupts_does_not_wait_for_them(
    status: str, until: float
) -> None:
    """A hundred million bytes at 25 MB/s are four seconds; from the beginning of the read, however many answers come."""
    machine, out = begun(edges=(15_000_006, 25_000_006))
    machine.tell(StopRequested(status, "enough"))
    out = machine.run(machine.done(order_of(out)))
    assert order_of(out).freeze.agents == [AgentRef("e0", 0, 0)]
    machine.now = 1.0
    out = machine.run(machine.done(order_of(out), tau=0))
    assert order_of(out).reduce.length == 60_000_000
    assert machine.tell(Tick(), at=until) == []
    out = machine.tell(Tick(), at=until + 0.1)
    assert [one.agent for one in order_of(out).stop] == [0, 1]


def test_agents_with_other_local_tensors_are_refused_by_name() -> None:
    machine, _ = training()
    odd = greeting(1, 0)
    machine.tell(AgentDied("e1", 1, 0, 101, 1, ""))
    odd = replace(odd, hello=replace(odd.hello, incarnation=1, local={"n": ["int64", [2], 16]}))
    machine.tell(odd)
    assert machine.machine.run.ending is not None
    assert "agents keep different local tensors: n of agent 0 is ['int64', [], 8]" in machine.machine.run.ending.reason
