"""The machine of a server by event lists: who is served when, what changes nothing, and who waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from mpca.driver.events import (
    AgentDied,
    AgentFinished,
    Event,
    ExchangeArrived,
    ExecutorLost,
    OrderFailed,
    ReadLocal,
    StopRequested,
    Tick,
)
from mpca.driver.instructions import End, Serve, StartAgent
from mpca.driver.objectives import Goals
from mpca.driver.server import ServerMachine
from mpca.errors import LocalProtocolError
from mpca.wire.orders import StopAgent
from tests.driver.support import E0, E1, Machine, hello, kinds, order_of, progress, written


class Server(Machine):
    kind = ServerMachine

    def __init__(self, shards: int = 1, **more: Any) -> None:
        super().__init__(phases=1, shards=shards, **more)

    def begun(self) -> list[Any]:
        """Both agents were told to begin; neither has taken an update."""
        out = self.started()
        while order_of(out).description != "begin":
            out = self.run(self.done(order_of(out), tau=0))
        return self.run(self.done(order_of(out)))

    def trains(self) -> list[Any]:
        self.begun()
        return [one for agent in range(self.agents) for one in self.run(progress(agent))]


def asks(agent: int, number: int = 1, incarnation: int = 0, **more: Any) -> ExchangeArrived:
    values = {
        "shard": 0, "updates": 10, "version": 0, "length": 24, "crc": 7, "finite": True, "start": 1.0, "asked": 1.5,
        "arrived": 2.0, **more,
    }  # fmt: skip
    return ExchangeArrived(f"e{agent}", agent, incarnation, number, **values)


def serves(out: list[Any]) -> list[tuple[int, bool, str]]:
    return [(one.sent.agent, one.take, one.reason) for one in out if isinstance(one, Serve)]


# ---- what it takes -------------------------------------------------------------------------------------------------------


def test_each_event_is_taken_and_nothing_else() -> None:
    machine = Server().machine
    assert set(machine._handlers) == set(get_args(Event))
    with pytest.raises(LocalProtocolError, match="no such event"):
        machine.handle(object(), 0.0)


def test_a_question_is_served_at_once_and_its_record_says_all() -> None:
    server = Server()
    assert kinds(server.trains()) == ["Write"], "training begins"
    server.now = 2.0
    out = server.run(asks(1, version=3))
    assert kinds(out) == ["Serve", "Write"]
    assert out[0] == Serve(asks(1, version=3), take=True)
    assert written(out, "exchange") == [
        {
            "cycle": 0, "shard": 0, "agent": 1, "incarnation": 0, "number": 1, "tau": 10, "staleness": 2, "version": 1,
            "share": 0.5, "wait": 0.5, "served": 0.25,
            "bytes": {"driver_in": 24, "driver_out": 24, "data_read": 0, "data_remote": 0}, "reason": "",
        }
    ]  # fmt: skip
    assert (server.machine.cycle, server.machine.exchange.versions) == (1, [1])


def test_questions_wait_until_all_agents_of_the_start_train_and_are_then_served_in_turn() -> None:
    server = Server(agents=3)
    server.begun()
    for agent in (2, 0):
        assert serves(server.run(asks(agent))) == []
    assert server.machine.began is None
    out = server.run(asks(1))
    assert kinds(out) == ["Write", "Serve", "Write", "Serve", "Write", "Serve", "Write"]
    assert serves(out) == [(2, True, ""), (0, True, ""), (1, True, "")]
    assert [one["cycle"] for one in written(out, "exchange")] == [0, 1, 2]


def test_after_the_start_timeout_questions_wait_for_nobody() -> None:
    server = Server()
    server.begun()
    assert serves(server.run(asks(0))) == []
    out = server.run(
        Tick(),
    )
    assert serves(out) == []
    server.now = 61.0
    assert serves(server.run(Tick())) == [(0, True, "")]


# ---- what changes nothing --------------------------------------------------------------------------------------------------


def test_what_an_older_incarnation_sent_is_answered_and_changes_nothing() -> None:
    server = Server()
    server.trains()
    server.run(AgentDied("e1", 1, 0, 101, 137, ""))
    out = server.run(asks(1))
    assert (kinds(out), serves(out)) == (["Serve"], [(1, False, "")])
    assert (server.machine.cycle, server.machine.exchange.versions) == (0, [0])


def test_an_agent_that_dies_before_its_turn_changes_nothing() -> None:
    server = Server(min_agents=2)
    server.begun()
    server.run(asks(1))
    server.run(AgentDied("e1", 1, 0, 101, 137, ""))
    out = server.run(hello(1, 1, shards=1))
    while not serves(out):
        order = order_of(out)
        out = [one for ack in server.acks(order) for one in server.run(ack)] + server.run(server.done(order))
        if not out:
            server.now = 61.0  # nobody waits any longer for a first update of agent 1
            out = server.run(Tick())
    assert serves(out) == [(1, False, "")]
    assert server.machine.cycle == 0


def test_what_is_not_finite_is_replaced_and_the_third_time_the_agent_is_started_anew() -> None:
    server = Server()
    server.trains()
    server.run(asks(1))
    for number in (1, 2):
        out = server.run(asks(0, number, finite=False))
        assert (kinds(out), serves(out)) == (["Serve", "Write"], [(0, False, "not finite")])
        assert written(out, "exchange")[0]["reason"] == "not finite"
    assert server.machine.agents_alive == 2
    out = server.run(asks(0, 3, finite=False))
    assert kinds(out) == ["Serve", "Write", "Write", "StartAgent"]
    assert out[-1] == StartAgent(replace_incarnation(E0, 1))
    assert (server.machine.cycle, server.machine.agents_lost) == (1, 1)


def replace_incarnation(who: Any, incarnation: int) -> Any:
    return who._replace(incarnation=incarnation)


def test_with_several_shards_an_agent_that_is_not_finite_is_brought_the_others_by_an_order() -> None:
    server = Server(shards=3)
    server.trains()
    server.run(asks(1, shard=1))
    out = server.run(asks(0, shard=1, finite=False))
    assert kinds(out) == ["Serve", "Write", "PublishJoint", "SubmitOrder"]
    assert {(one.mode, one.shard) for one in order_of(out).downloads} == {("replace", shard) for shard in range(3)}


def test_when_no_agent_is_finite_training_has_diverged() -> None:
    server = Server()
    server.trains()
    server.run(asks(0, finite=False))
    server.run(asks(1, finite=False))
    ending = server.machine.run.ending
    assert ending is not None
    assert (ending.status, ending.final) == ("failed", True)
    assert "all 2 agents are not finite after 0 exchanges" in ending.reason


# ---- who waits -------------------------------------------------------------------------------------------------------------


def test_fewer_than_min_agents_pause_the_serving() -> None:
    server = Server(min_agents=2)
    server.trains()
    out = server.run(ExecutorLost("e1", "exit code 137"))
    assert written(out, "pause")[0]["reason"] == "1 of 2 agents alive, min_agents=2"
    assert serves(server.run(asks(0))) == []
    assert server.machine.state == "PAUSED"


def test_questions_are_served_while_an_order_is_out() -> None:
    server = Server()
    server.trains()
    server.run(AgentDied("e1", 1, 0, 101, 137, ""))
    out = server.run(hello(1, 1, shards=1))
    order = order_of(out)
    assert {one.mode for one in order.downloads} == {"replace"}
    assert serves(server.run(asks(0))) == [(0, True, "")]
    server.run(server.done(order))
    assert serves(server.run(asks(0, 2))) == [(0, True, "")], "the joiner has not acknowledged"
    begin = order_of([one for ack in server.acks(order) for one in server.run(ack)])
    assert (begin.description, begin.begin) == ("begin", [replace_incarnation(E1, 1)])


def test_an_order_that_fails_is_built_anew() -> None:
    server = Server()
    server.trains()
    server.run(AgentDied("e1", 1, 0, 101, 137, ""))
    order = order_of(server.run(hello(1, 1, shards=1)))
    assert kinds(server.run(OrderFailed(order.order, None, "lost", ["e0"]))) == []
    server.now += 2.0
    again = order_of(server.run(Tick()))
    assert (again.order, again.executors, again.downloads) == (order.order + 1, ["e1"], order.downloads)


def test_a_late_agent_that_asks_is_back() -> None:
    server = Server()
    server.trains()
    server.run(progress(0))
    server.machine.run.late.left_out(server.machine.run.table.agents[0], "it was slow", 0.0)
    out = server.run(asks(0))
    assert [one["event"] for one in written(out, "agent")] == ["rediscovered"]
    assert serves(out) == [(0, True, "")]


# ---- the end -----------------------------------------------------------------------------------------------------------------


def test_no_more_than_max_cycles_are_served_and_who_waits_is_answered_before_the_stop() -> None:
    server = Server(agents=3, goals=Goals(max_cycles=2))
    server.begun()
    for agent in (2, 1):
        server.run(asks(agent))
    out = server.run(asks(0))
    assert serves(out) == [(2, True, ""), (1, True, ""), (0, False, "")]
    assert [(one.agent, one.reason) for one in order_of(out).stop] == [(agent, "2 exchanges") for agent in range(3)]
    assert len(written(out, "exchange")) == 2
    assert serves(server.run(asks(1, 2))) == [(1, False, "")], "it asked before it heard of the stop"


def test_a_run_ends_when_all_have_heard_and_returned() -> None:
    server = Server()
    server.trains()
    server.run(asks(0))
    stop = order_of(server.run(StopRequested("max_time", "60 s of training")))
    assert stop.stop == [StopAgent(*E0, "60 s of training"), StopAgent(*E1, "60 s of training")]
    server.run(server.done(stop))
    server.run(AgentFinished("e0", 0, 0, b""))
    assert server.run(AgentFinished("e1", 1, 0, b""))[-1] == End("max_time", "60 s of training")


def test_the_limit_that_comes_before_the_first_exchange_is_a_failure() -> None:
    server = Server()
    server.trains()
    stop = order_of(server.run(StopRequested("max_time", "60 s of training")))
    server.run(server.done(stop))
    server.run(AgentFinished("e0", 0, 0, b""))
    assert server.run(AgentFinished("e1", 1, 0, b""))[-1].status == "failed"


def test_local_tensors_are_read_between_exchanges() -> None:
    server = Server()
    server.begun()
    server.machine.run.lengths = [24, 4]  # the second is a shard of local tensors
    server.run(progress(0))
    server.run(progress(1))
    out = server.run(ReadLocal())
    order = order_of(out)
    assert order.freeze is not None
    assert order.freeze.shard == 1
    assert serves(server.run(asks(1))) == [(1, True, "")]


def test_a_process_that_asks_anew_is_served_once() -> None:
    server = Server(min_agents=2)
    server.begun()
    server.run(asks(1))
    again = replace(asks(1), number=2)
    server.run(again)
    out = server.run(asks(0))
    assert [one.sent for one in out if isinstance(one, Serve)] == [again, asks(0)]
