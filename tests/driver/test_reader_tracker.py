"""Who reads the data, by event lists: what agents are told when others are lost or come back, and what a backup keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import pytest

from mpca.data.plan import Loss, Readers
from mpca.driver.events import AgentDied, AgentProgress, ExecutorLost, ExecutorReady, OrderFailed
from mpca.driver.reader_tracker import ReaderTracker
from mpca.errors import BackupError
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import Order, ReadersOrder
from tests.driver.support import Machine, hello, order_of, progress, written


def at(agent: int, epoch: int, done: int, ahead: int, incarnation: int = 0) -> AgentProgress:
    return replace(progress(agent, incarnation), data=[epoch, done, ahead])


def cycles(machine: Machine, out: list[Any], count: int) -> tuple[list[Any], list[ReadersOrder]]:
    """So many orders later, and who was told what meanwhile."""
    told = []
    for _ in range(count):
        told += [order_of(out).readers] if order_of(out).readers else []
        out = machine.cycle(out)
    return out, told


def reading(machine: Machine) -> list[Any]:
    """A run whose agents are in epoch 2, and agent 0 has read ahead into epoch 3."""
    out = machine.training()
    for agent in range(machine.agents):
        machine.run(at(agent, 2, 10 + agent, 3 if agent == 0 else 2))
    return out


def test_a_run_without_losses_is_told_nothing() -> None:
    machine = Machine(agents=3)
    out, told = cycles(machine, reading(machine), 5)
    assert told == []
    assert order_of(out).readers is None


def test_a_run_without_a_stream_is_told_nothing() -> None:
    machine = Machine(agents=3)
    out = machine.training()
    machine.run(AgentDied("e1", 1, 0, 101, 137, ""))
    assert cycles(machine, out, 5)[1] == []
    assert machine.machine.run.reader_tracker.position() == {}


def test_with_the_next_order_the_living_hear_of_a_loss_once_and_its_replacement_of_its_first_epoch() -> None:
    machine = Machine(agents=3)
    out = reading(machine)
    machine.run(AgentDied("e1", 1, 0, 101, 137, ""))
    out, told = cycles(machine, out, 4)
    lost = Readers(3, ((0, 0), (1, 0), (2, 0)), (Loss(1, 2, 11, last=3),))
    assert told == [ReadersOrder(1, lost.to_dict(), [AgentRef("e0", 0, 0), AgentRef("e2", 2, 0)])], "once"

    machine.run(hello(1, incarnation=1))
    machine.run(at(1, 0, 0, 0, incarnation=0))  # a late word of the one that died
    for _ in range(8):
        out, more = cycles(machine, out, 1)
        told += more
    joined = lost.join(1, 4)
    everybody = [AgentRef("e0", 0, 0), AgentRef("e1", 1, 1), AgentRef("e2", 2, 0)]
    assert told[1:] == [ReadersOrder(1, lost.to_dict(), [AgentRef("e1", 1, 1)]), ReadersOrder(2, joined.to_dict(), everybody)]
    begin = [one for one in told if one.version == 2]
    assert Readers.from_dict(begin[0].readers).first(1) == 4, "nobody has begun epoch 4"


def test_a_replacement_that_is_lost_before_it_has_heard_of_its_first_epoch_is_lost_all_the_same() -> None:
    machine = Machine(agents=3)
    out = reading(machine)
    machine.run(AgentDied("e1", 1, 0, 101, 137, ""))
    out, _ = cycles(machine, out, 4)
    machine.run(hello(1, incarnation=1))
    out, _ = cycles(machine, out, 8)
    assert machine.machine.run.reader_tracker.readers.first(1) == 4
    machine.run(at(1, 0, 0, 0, incarnation=1))
    machine.run(AgentDied("e1", 1, 1, 102, 137, ""))
    cycles(machine, out, 2)
    assert machine.machine.run.reader_tracker.readers.begin(5) == [0, 2]


def test_agents_hear_where_all_live_before_they_begin_when_the_data_have_places() -> None:
    hosts = (("host0", "far"), ("host1",), ())
    machine = Machine(agents=2, shard_hosts=hosts)
    out = machine.started()
    while order_of(out).description != "begin":
        assert order_of(out).readers is None
        out = machine.run(machine.done(order_of(out), tau=0))
    first = order_of(out).readers
    assert first is not None
    assert first.agents == [AgentRef("e0", 0, 0), AgentRef("e1", 1, 0)]
    readers = Readers.from_dict(first.readers)
    assert (readers.shard_hosts, readers.near(0)) == (hosts, {0: {0}, 1: {1}})

    machine.run(machine.done(order_of(out)))
    for agent in range(2):
        out = machine.run(at(agent, 1, 3, 2))
    assert cycles(machine, out, 3)[1] == [], "once"
    kept = msgpack.unpackb(msgpack.packb(machine.machine.run.reader_tracker.position()))
    later = Machine(agents=1, resumed=True, data=kept, shard_hosts=(("host0",), (), ()))
    out = later.started()
    while not order_of(out).begin:
        out = later.cycle(out)
    told = order_of(out).readers
    assert told is not None
    resumed = Readers.from_dict(told.readers)
    assert (resumed.homes, resumed.shard_hosts) == (((0, 1, "host0"),), (("host0",), (), ()))
    assert resumed.before[0].near(1) == {0: {0}, 1: {1}}


def test_an_agent_that_comes_back_on_another_host_lives_there_from_its_first_epoch_on() -> None:
    machine = Machine(agents=2, shard_hosts=(("host0",), ("host1", "host7")))
    out = machine.training()
    for agent in range(2):
        out = machine.run(at(agent, 1, 3, 1)) or out
    machine.run(ExecutorLost("e1", "killed"))
    machine.run(ExecutorReady("e7", "host7", 2))
    out = machine.run(machine.done(order_of(out)))
    machine.run(replace(hello(1, incarnation=1), executor="e7", host="host7"))
    told: list[ReadersOrder] = []
    while not any(Readers.from_dict(one.readers).home(1) == "host7" for one in told):
        out, more = cycles(machine, out, 1)
        told += more
    readers = Readers.from_dict(told[-1].readers)
    assert readers.first(1) == 2
    assert (readers.home(1, 1), readers.home(1, 2)) == ("host1", "host7")
    assert readers.near(2) == {0: {0}, 1: {1}}


def test_an_order_that_failed_tells_again() -> None:
    machine = Machine(agents=3)
    out = reading(machine)
    machine.run(AgentDied("e1", 1, 0, 101, 137, ""))
    out = machine.run(machine.done(order_of(out)))
    order = order_of(out)
    assert order.readers is not None
    machine.run(OrderFailed(order.order, "e2", "lost", ["e2"]))
    again = order_of(machine.run(ExecutorLost("e2", "killed")))
    assert again.readers is not None
    assert [loss.agent for loss in Readers.from_dict(again.readers.readers).losses] == [1, 2]
    assert again.readers.agents == [AgentRef("e0", 0, 0)]


def test_a_late_agent_keeps_its_share() -> None:
    machine = Machine(agents=2)
    out = reading(machine)
    machine.late = {1: "no answer before the deadline"}
    assert cycles(machine, out, 3)[1] == []


def test_bytes_that_were_read_are_in_the_next_cycles_record_once_over_incarnations() -> None:
    machine = Machine(agents=2)
    out = machine.training()

    def said(agent: int, read: int, remote: int, incarnation: int = 0) -> None:
        machine.run(replace(progress(agent, incarnation), data_read=read, data_remote=remote))

    def of_two_cycles() -> list[tuple[int, int]]:
        nonlocal out
        lines = []
        while len(lines) < 2:
            out = machine.cycle(out)
            lines += [one["bytes"] for one in written(out)]
        return [(one["data_read"], one["data_remote"]) for one in lines]

    assert of_two_cycles() == [(0, 0), (0, 0)]
    said(0, 100, 40)
    said(1, 10, 0)
    assert of_two_cycles() == [(110, 40), (0, 0)]
    machine.run(AgentDied("e1", 1, 0, 101, 137, ""))
    said(1, 7, 7, incarnation=1)
    said(0, 105, 40)
    assert of_two_cycles() == [(12, 7), (0, 0)]


def test_what_lies_behind_everybody_is_forgotten() -> None:
    machine = Machine(agents=3)
    out = reading(machine)
    machine.run(AgentDied("e1", 1, 0, 101, 137, ""))
    out, _ = cycles(machine, out, 3)
    for agent in (0, 2):
        machine.run(at(agent, 9, 0, 9))
    machine.run(AgentDied("e2", 2, 0, 102, 137, ""))
    _, told = cycles(machine, out, 2)
    assert Readers.from_dict(told[0].readers) == Readers(3, ((0, 0), (2, 0)), (Loss(2, 9, 0, last=9),))


def test_a_backup_keeps_where_agents_are_and_a_later_attempt_goes_on_from_it() -> None:
    machine = Machine(agents=3)
    out = reading(machine)
    machine.run(AgentDied("e1", 1, 0, 101, 137, ""))
    cycles(machine, out, 2)
    kept = msgpack.unpackb(msgpack.packb(machine.machine.run.reader_tracker.position()))
    assert kept["at"] == [[0, 2, 10], [2, 2, 12]]

    later = Machine(agents=2, resumed=True, data=kept)
    out = later.started()
    readers = order_of(out).readers
    assert readers is not None
    assert readers.agents == [AgentRef("e0", 0, 0), AgentRef("e1", 1, 0)], "before they begin"
    found = Readers.from_dict(readers.readers)
    assert [found.first(agent) for agent in (0, 1)] == [2, 2]
    assert [(loss.agent, loss.epoch, loss.done) for loss in found.before[0].losses] == [(1, 2, 11), (0, 2, 10), (2, 2, 12)]
    assert found.last == 3


def test_who_has_said_nothing_yet_is_at_the_very_beginning() -> None:
    machine = Machine(agents=2)
    machine.training()
    machine.run(at(0, 0, 4, 0))
    assert machine.machine.run.reader_tracker.position()["at"] == [[0, 0, 4], [1, 0, 0]]


def test_a_damaged_position_is_refused_by_name() -> None:
    with pytest.raises(BackupError, match="position in the data is damaged: KeyError: 'at'"):
        ReaderTracker(2, {"readers": {}})


def test_an_order_carries_it_packed() -> None:
    order = Order(1, "r", 0, 0, 1.0, ["e0"], readers=ReadersOrder(2, Readers.of(1).to_dict(), [AgentRef("e0", 0, 0)]))
    assert msgpack.unpackb(order.pack())["readers"]["readers"]["since"] == [[0, 0]]
