"""The still point at which agents' own states are saved, by event lists; and the order that stops a run."""

from __future__ import annotations

from typing import Any

import pytest

from mpca.driver.events import OrderFailed, SaveAgents, StopRequested, Tick
from mpca.driver.instructions import SaveJoint
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import Order
from tests.driver.support import E0, E1, Machine, order_of, reducing, written

FOLDER = "hdfs://nn/backups"


def made(phases: int, shards: int = 3) -> Machine:
    return Machine(phases=phases, shards=shards, saves_to=FOLDER)


def answered(machine: Machine, order: Order) -> list[Any]:
    """The order has ended, and its downloads have arrived."""
    out = machine.run(machine.done(order))
    for one in machine.acks(order):
        out += machine.run(one)
    return out


def to_rest(machine: Machine, order: Order) -> tuple[list[Order], list[Any]]:
    """From this order on to the one that saves.

    Returns:
        All orders on the way, and the instructions that brought the last one.
    """
    orders, out = [], []
    while order.save is None:
        orders.append(order)
        out = answered(machine, order)
        order = order_of(out)
    return [*orders, order], out


@pytest.mark.parametrize("phases", [1, 2, 3])
def test_what_is_frozen_is_summed_and_delivered_before_anybody_is_saved(phases: int) -> None:
    machine = made(phases)
    order = order_of(reducing(machine))
    for _ in range(9):  # the pipeline is full
        order = order_of(answered(machine, order))
    machine.run(SaveAgents())
    orders, out = to_rest(machine, order)
    *before, save = orders
    assert all(one.freeze is None for one in before[1:]), "no further snapshot"
    frozen = {one.freeze.cycle for one in before if one.freeze}
    assert frozen <= {one.reduce.cycle for one in before if one.reduce}, "what was frozen is summed"
    assert machine.machine.cycle == machine.sums, "every sum is in the joint model"
    newest = dict(enumerate(machine.machine.exchange.versions))
    delivered = {one.shard: one.version for order in before for one in order.downloads}
    assert all(newest[shard] == version for shard, version in delivered.items())
    assert save.save is not None
    assert (save.save.number, save.save.agents) == (1, [E0, E1])
    hidden = f"{FOLDER}/.tmp-term-0001-cycle-{machine.machine.cycle:08d}"
    assert save.save.urls == [f"{hidden}/agent-00000-0.pt", f"{hidden}/agent-00001-0.pt"]
    (joint,) = [one for one in out if isinstance(one, SaveJoint)]
    assert joint == SaveJoint(1, {E0: "agent-00000-0.pt", E1: "agent-00001-0.pt"})
    assert out.index(joint) < len(out) - 1, "the shell takes the joint model before the order goes out"
    again = order_of(answered(machine, save))
    assert again.freeze is not None, "the next cycle begins as the first one did"
    assert again.freeze.cycle == machine.machine.cycle
    assert again.save is None
    out, cycle = answered(machine, again), machine.machine.cycle
    while not written(out):
        out = answered(machine, order_of(out))
    (record,) = written(out)
    assert (record["cycle"], record["submissions"]) == (cycle, 1 + (phases == 1)), "deliveries between cycles are no failures"


def test_an_order_that_failed_saves_once_more_under_the_same_number() -> None:
    machine = made(3)
    order = order_of(reducing(machine))
    machine.run(SaveAgents())
    *_, save = to_rest(machine, order)[0]
    machine.run(OrderFailed(save.order, "e1", "a task failed", ["e1"]))
    out = machine.tell(Tick(), at=machine.now + 3.0)
    again = order_of(out)
    assert again.save is not None
    assert again.save.number == 1
    assert again.save.agents == [AgentRef("e0", 0, 0)], "without whom the failure is put down to"
    assert [one.number for one in out if isinstance(one, SaveJoint)] == [1]


def test_agents_are_saved_by_the_order_that_stops_them_before_they_stop() -> None:
    machine = made(3)
    order = order_of(reducing(machine))
    machine.run(StopRequested("interrupted", "SIGTERM"))
    out = machine.run(machine.done(order))
    stop = order_of(out)
    assert [one.reason for one in stop.stop] == ["SIGTERM", "SIGTERM"]
    assert stop.save is not None
    assert stop.save.agents == [E0, E1]
    assert len([one for one in out if isinstance(one, SaveJoint)]) == 1


def test_a_run_without_it_saves_nobody_at_its_end() -> None:
    machine = Machine()
    order = order_of(reducing(machine))
    machine.run(StopRequested("interrupted", "SIGTERM"))
    out = machine.run(machine.done(order))
    assert order_of(out).save is None
    assert not [one for one in out if isinstance(one, SaveJoint)]
