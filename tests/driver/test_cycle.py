"""The driver's machine by event lists: what it takes, what it leaves alone, and how a run ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from mpca.driver.events import (
    AgentBack,
    AgentDied,
    AgentFailedEvent,
    AgentFinished,
    Event,
    ExchangeArrived,
    ExchangeServed,
    ExecutorLost,
    HoldEnded,
    OrderDone,
    OrderFailed,
    Output,
    StopRequested,
    Tick,
)
from mpca.driver.instructions import CutOff, End, Withdraw
from mpca.errors import LocalProtocolError
from mpca.wire.orders import Part, StopAgent
from tests.driver.support import E0, E1, Machine, hello, kinds, order_of, progress, reducing

# ---- what it takes -----------------------------------------------------------------------------------------------------


def test_each_event_is_taken_in_every_stage_and_nothing_else_in_any() -> None:
    machine = Machine()
    end = machine.machine
    reducing(machine)
    for _ in range(2):
        for stranger in (object(), Output(0, 0, ["said"]), Part("e0", 1.0)):
            before = end.state
            with pytest.raises(LocalProtocolError, match=f"no such event: .*{type(stranger).__name__}"):
                end.handle(stranger, machine.now)
            assert end.state == before
        machine.run(AgentFinished("e0", 0, 0, b""))
        machine.run(AgentFinished("e1", 1, 0, b""))
        machine.run(StopRequested("interrupted", "Ctrl-C"))
        machine.tell(Tick(), at=100.0)
    assert end.state == "CLOSED"
    assert set(end._handlers) == set(get_args(Event)) - {ExchangeArrived, ExchangeServed}


# ---- fences ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        hello(1, 0),
        AgentDied("e1", 1, 0, 101, 137, ""),
        AgentFailedEvent("e1", "host1", 1, 0, "ValueError: x", "traceback"),
        AgentFinished("e1", 1, 0, b""),
        AgentBack("e1", 1, 0),
        HoldEnded(1, 0, "ended"),
        progress(1, 0),
        OrderDone(1, [], 0.0, 0.0, 0),
        OrderFailed(1, "e1", "lost"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_an_older_incarnation_or_order_says_changes_nothing(event: Any) -> None:
    machine = Machine()
    reducing(machine)
    machine.run(AgentDied("e1", 1, 0, 101, 137, ""))
    before = [(one.state, one.incarnation) for one in machine.machine.run.table.agents]
    assert machine.run(event) == []
    assert [(one.state, one.incarnation) for one in machine.machine.run.table.agents] == before


def test_a_yield_of_an_incarnation_that_was_not_asked_is_not_taken() -> None:
    machine = Machine()
    order = order_of(reducing(machine))
    answers = machine.answers(order)
    answers[1].frozen[0] = replace(answers[1].frozen[0], incarnation=7)
    out = machine.run(OrderDone(order.order, answers, 10.0, 12.0, 8))
    assert sorted(part.executor for part in order_of(out).reduce.parts) == ["e0"]


# ---- the end -------------------------------------------------------------------------------------------------------------


def test_a_stop_prepares_the_last_sum_writes_its_line_and_then_tells_the_agents() -> None:
    machine = Machine()
    out = reducing(machine)
    assert machine.run(StopRequested("max_cycles", "1 cycles")) == []
    order = order_of(out)
    out = machine.run(machine.done(order))
    assert kinds(out) == ["Prepare", "Write", "SubmitOrder"]
    assert order_of(out).stop == [StopAgent(*E0, "1 cycles"), StopAgent(*E1, "1 cycles")]
    machine.run(AgentFinished("e0", 0, 0, b""))
    machine.run(machine.done(order_of(out)))
    assert machine.run(AgentFinished("e1", 1, 0, b""))[-1] == End("max_cycles", "1 cycles")
    assert machine.machine.state == "CLOSED"


def test_who_has_finished_is_not_held_again() -> None:
    machine = Machine()
    reducing(machine)
    machine.run(AgentFinished("e1", 1, 0, b""))
    assert machine.run(HoldEnded(1, 0, "ended")) == []


def test_a_stop_does_not_wait_for_ever() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.run(StopRequested("interrupted", "Ctrl-C"))
    assert machine.tell(Tick(), at=2.0) == []
    out = machine.tell(Tick(), at=2.5)
    assert kinds(out)[0] == "CancelOrder"
    assert order_of(out).stop
    assert machine.tell(Tick(), at=6.4) == []
    end = machine.tell(Tick(), at=7.0)[-1]
    assert (end.status, end.reason, [one.agent for one in end.cut_off]) == ("interrupted", "Ctrl-C", [0, 1])


def test_a_stop_does_not_wait_for_an_agent_that_dies_meanwhile_though_it_was_late() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.late = {1: "no answer before the deadline"}
    order = order_of(machine.run(machine.done(order_of(out))))
    machine.run(StopRequested("max_time", "60 s of training"))
    stop = order_of(machine.run(machine.done(order)))
    assert [one.agent for one in stop.stop] == [0, 1]
    machine.run(machine.done(stop))
    assert [one for one in machine.run(AgentFinished("e0", 0, 0, b"")) if isinstance(one, End)] == []
    end = machine.run(AgentDied("e1", 1, 0, 101, 134, ""))[-1]
    assert end == End("max_time", "60 s of training", cut_off=(CutOff(1, "died: exit code 134", work_lost=False),))


def test_an_error_of_the_users_code_ends_the_run_with_its_traceback() -> None:
    machine = Machine()
    order = order_of(reducing(machine))
    machine.run(AgentFailedEvent("e1", "host1", 1, 0, "ValueError: no", "Traceback ..."))
    assert [stop[:3] for stop in order_of(machine.run(machine.done(order))).stop] == [E0], "nobody waits for who is gone"
    why = "agent 1 (host host1, executor e1) raised ValueError: no\nTraceback ..."
    assert machine.machine.run.ending == StopRequested("failed", why, final=True)


def test_when_every_train_function_has_returned_the_run_has_reached_its_end() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.run(AgentFinished("e0", 0, 0, b""))
    machine.run(AgentFinished("e1", 1, 0, b""))
    out = machine.run(machine.done(order_of(out)))
    assert out[-1] == End("reached", "every train function returned")


def test_a_broadcast_whose_cycle_did_not_come_about_is_withdrawn_when_a_newer_one_is_ready() -> None:
    machine = Machine(agents=2, min_agents=2)
    out = machine.training()
    for _ in range(3):
        out = machine.cycle(out)
    order = order_of(out)  # cycle 2: 500 is being downloaded, 501 was prepared meanwhile
    machine.run(ExecutorLost("e1", "exit code 137"))
    out = machine.run(OrderFailed(order.order, "e1", "lost"))
    assert machine.machine.state == "PAUSED"
    assert [one.broadcast for one in out if isinstance(one, Withdraw)] == [500]
