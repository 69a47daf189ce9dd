"""Agents and executors are lost, late and replaced: what the driver's machine does then."""

from __future__ import annotations

import pytest

from mpca.driver.events import (
    AgentBack,
    AgentDied,
    AgentFinished,
    AgentHello,
    ExecutorDamages,
    ExecutorLost,
    ExecutorReady,
    OrderDone,
    OrderFailed,
    Tick,
)
from mpca.driver.instructions import CancelOrder, StartAgent, SubmitOrder, Withdraw
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import Freeze, Order, Part, Reduce
from tests.driver.support import E0, E1, E2, Machine, hello, kinds, order_of, progress, reducing, written


def test_a_lost_executor_is_left_out_and_the_same_cycle_goes_out_again() -> None:
    machine = Machine(agents=3)
    order = order_of(reducing(machine))
    assert [part.executor for part in order.reduce.parts] == ["e0", "e1", "e2"]
    assert CancelOrder(order.order, "executor e1 lost") in machine.run(ExecutorLost("e1", "exit code 137"))
    again = order_of(machine.run(OrderFailed(order.order, "e1", "FetchFailed", ["e0", "e1", "e2"])))
    assert again.order == order.order + 1
    assert again.reduce == Reduce(0, 0, 8, [Part("e0", 4.0), Part("e2", 4.0)])
    assert again.freeze == Freeze(1, 1, [E0, E2])
    (line,) = written(machine.cycle([SubmitOrder(again)]))
    assert sorted(line["contributors"]) == [0, 2]
    assert line["left_out"] == {1: "executor e1 lost"}
    assert line["submissions"] == 2


def test_a_failure_that_no_loss_explains_leaves_out_the_executor_that_failed_and_nobody_else() -> None:
    machine = Machine(agents=3)
    order = order_of(reducing(machine))
    assert machine.run(OrderFailed(order.order, "e1", "WrongExecutor", ["e0", "e1", "e2"])) == []
    out = machine.tell(Tick(), at=1.0)
    assert [one["index"] for one in written(out, "agent")] == [1]
    assert order_of(out).reduce == Reduce(0, 0, 8, [Part("e0", 4.0), Part("e2", 4.0)])


def test_an_executor_that_damages_bytes_is_left_out_at_once_of_all_ranges() -> None:
    machine = Machine(agents=3)
    order = order_of(reducing(machine))
    why = "executor e1 damages bytes: chunk 3"
    out = machine.run(OrderFailed(order.order, "e1", why, ["e0", "e1", "e2"], damages=True))
    assert [(one["index"], one["event"], one["reason"]) for one in written(out, "agent")] == [(1, "lost", why)]
    again = order_of(out)  # without a moment's grace: it is known who it was
    assert again.reduce == Reduce(0, 0, 8, [Part("e0", 4.0), Part("e2", 4.0)])
    assert again.executors == ["e0", "e2"]
    (line,) = written(machine.cycle(out))
    assert line["left_out"] == {1: why}


def test_a_lost_executor_does_not_hide_one_that_damages_bytes() -> None:
    machine = Machine(agents=4)
    order = order_of(reducing(machine))
    machine.run(ExecutorLost("e3", "exit code 137"))
    out = machine.run(OrderFailed(order.order, "e1", "executor e1 damages bytes: chunk 3", [], damages=True))
    assert [part.executor for part in order_of(out).reduce.parts] == ["e0", "e2"]


def test_an_executor_whose_pieces_were_damaged_is_in_no_further_order() -> None:
    machine = Machine(agents=3)
    out = machine.training()
    order = order_of(machine.cycle(out))
    told = machine.run(ExecutorDamages("e1", "executor e1 damages bytes: piece 7"))
    assert [one["index"] for one in written(told, "agent")] == [1]
    assert machine.run(ExecutorDamages("e9", "unknown by now")) == []
    out = machine.cycle([SubmitOrder(order)])
    assert "e1" not in order_of(out).freeze.agents
    assert E1 not in order_of(out).freeze.agents


@pytest.mark.parametrize(
    ("failed", "reasons"),
    [(8.0, ["its download was not acknowledged in time", None]), (2.0, [None, "no answer"])],
    ids=["after the deadline of its download", "before"],
)
def test_an_executor_that_did_not_end_is_left_out_with_a_reason_though_its_agent_is_late_already(
    failed: float, reasons: list[str | None]
) -> None:
    """A stopped executor acknowledges nothing either: that is noticed while the failed order has its moment of grace."""
    machine = Machine(agents=3)
    out = machine.training()
    for _ in range(3):
        out = machine.cycle(out)
    order = order_of(out)
    for ack in machine.acks(order):
        if ack.agent != 1:
            machine.run(ack)
    machine.tell(OrderFailed(order.order, None, "no answer", ["e1"]), at=failed)
    ticks = machine.tell(Tick(), at=failed + 0.1), machine.tell(Tick(), at=failed + 1.1)
    assert [next((one["reason"] for one in written(out, "agent")), None) for out in ticks] == reasons
    again = ticks[1]
    assert [part.executor for part in order_of(again).reduce.parts] == ["e0", "e2"]
    (line,) = written(machine.cycle(again))
    assert line["left_out"] == {1: "no answer"}


def test_a_snapshot_of_an_agent_that_died_after_it_counts() -> None:
    machine = Machine()
    order = order_of(reducing(machine))
    assert kinds(machine.run(AgentDied("e1", 1, 0, 101, 137, ""))) == ["Write", "StartAgent"]
    (line,) = written(machine.run(machine.done(order)))
    assert sorted(line["contributors"]) == [0, 1]
    assert line["contributors"][1]["incarnation"] == 0


def test_a_replacement_takes_the_joint_model_and_begins_when_all_of_it_has_arrived() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.run(AgentDied("e1", 1, 0, 101, 137, ""))
    machine.run(hello(1, incarnation=1))
    out = machine.run(machine.done(order_of(out)))
    order = order_of(out)
    assert [(one.shard, one.mode, one.agents) for one in order.downloads] == [
        (s, "replace", [AgentRef("e1", 1, 1)]) for s in range(3)
    ]
    assert order.begin == []
    out = machine.cycle([SubmitOrder(order)])
    assert order_of(out).begin == [AgentRef("e1", 1, 1)]
    assert [one.broadcast for one in machine.tell(Tick()) if isinstance(one, Withdraw)] == []
    machine.run(progress(1, 1))
    assert order_of(machine.cycle(out)).freeze.agents == [E0, AgentRef("e1", 1, 1)]


def test_a_cycle_waits_for_a_joiners_download_so_that_its_base_is_young() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.run(AgentDied("e1", 1, 0, 101, 137, ""))
    machine.run(hello(1, incarnation=1))
    order = order_of(machine.run(machine.done(order_of(out))))
    assert written(machine.run(machine.done(order))) == []
    *some, last = machine.acks(order)
    assert [written(machine.run(ack)) for ack in some] == [[], []]
    assert len(written(machine.run(last))) == 1


def joining() -> tuple[Machine, Order]:
    """Agent 1 was started again, and the order has brought it the joint model, of which nothing is acknowledged."""
    machine = Machine()
    out = reducing(machine)
    machine.run(AgentDied("e1", 1, 0, 101, 137, ""))
    machine.run(hello(1, incarnation=1))
    order = order_of(machine.run(machine.done(order_of(out))))
    machine.run(machine.done(order))
    return machine, order


def test_a_joint_model_that_does_not_come_within_the_deadline_is_sent_anew_and_a_warning_says_what_to_raise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine, _order = joining()
    assert not caplog.records
    assert kinds(machine.tell(Tick(), at=5.1))[-4:] == [*["Withdraw"] * 3, "PublishJoint"]
    (warning,) = caplog.records
    assert warning.getMessage() == (
        "agents=[1] have not received a shard of the joint model within 5s, and it is sent anew; if this happens again, raise "
        "cluster.cycle_deadline, which is 5s"
    )


def test_what_is_sent_anew_may_take_twice_and_four_times_as_long_until_it_has_arrived() -> None:
    """Behind the exchanges of others a shard may take longer than `cluster.cycle_deadline`, each time that it is sent."""
    machine, order = joining()

    def waits(patience: float) -> Order:
        """How long the joint model on its way has; the order that sends it anew."""
        begun = machine.now
        for ack in machine.acks(order):
            if ack.agent == 0:
                machine.run(ack)
        assert "PublishJoint" not in kinds(machine.tell(Tick(), at=begun + patience))
        machine.now = begun + patience + 0.1
        again = order_of(machine.run(Tick()))
        machine.run(machine.done(again))
        return again

    for patience in (5.0, 10.0, 20.0, 20.0):
        order = waits(patience)
    out = [one for ack in machine.acks(order) for one in machine.run(ack)]
    assert order_of(out).begin == [AgentRef("e1", 1, 1)]
    machine.run(AgentDied("e1", 1, 1, 101, 137, ""))
    machine.run(hello(1, incarnation=2))
    order = order_of(machine.cycle(out))
    machine.run(machine.done(order))
    waits(5.0)


def test_a_joint_model_of_which_a_shard_arrives_within_each_deadline_is_not_sent_anew(caplog: pytest.LogCaptureFixture) -> None:
    """A model of hundreds of MB over a slow link takes longer than `cluster.cycle_deadline`, and would never be there."""
    machine, order = joining()
    first, second, last = machine.acks(order)
    assert machine.tell(first, at=4.0) == []
    assert machine.tell(Tick(), at=8.9) == []
    assert machine.tell(second, at=8.9) == []
    assert "Withdraw" not in kinds(machine.tell(Tick(), at=13.8))
    assert len(written(machine.tell(last, at=13.8))) == 1
    assert not caplog.records


def test_a_shard_that_is_acknowledged_again_is_no_progress_of_who_joins() -> None:
    machine, order = joining()
    first = machine.acks(order)[0]
    assert machine.tell(first, at=4.0) == []
    assert machine.tell(first, at=8.9) == []
    assert "PublishJoint" in kinds(machine.tell(Tick(), at=9.1))


def test_a_late_agent_is_left_out_until_it_answers() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.late = {1: "no answer before the deadline"}
    out = machine.run(machine.done(order_of(out)))
    assert [(one["event"], one["index"]) for one in written(out, "agent")] == [("lost", 1)]
    order = order_of(out)
    assert order.reduce == Reduce(1, 1, 8, [Part("e0", 4.0)])
    assert order.freeze.agents == [E0]
    machine.late = {}
    assert written(machine.run(AgentBack("e1", 1, 0)), "agent")[0]["event"] == "rediscovered"
    out = machine.run(machine.done(order))
    assert written(out)[0]["left_out"] == {1: "no answer before the deadline"}
    assert order_of(out).freeze.agents == [E0, E1]


def test_an_agent_that_is_back_before_it_is_known_to_be_late_stays_in() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.late = {1: "no answer before the deadline"}
    machine.run(AgentBack("e1", 1, 0))
    out = machine.run(machine.done(order_of(out)))
    assert written(out, "agent") == []
    assert order_of(out).freeze.agents == [E0, E1]


def test_below_min_agents_the_run_pauses_with_a_reason_and_goes_on_by_itself() -> None:
    machine = Machine(agents=3, min_agents=3)
    order = order_of(reducing(machine))
    machine.now = 1.5
    machine.run(ExecutorLost("e1", "exit code 137"))
    out = machine.run(OrderFailed(order.order, "e1", "lost"))
    assert machine.machine.state == "PAUSED"
    why = "2 of 3 agents alive, min_agents=3"
    assert written(out, "pause") == [{"start": 1.5, "end": None, "reason": why}]
    assert StartAgent(AgentRef("e9", 1, 1)) in machine.run(ExecutorReady("e9", "host9", 2))
    joined = hello(1, 1)
    order = order_of(machine.run(AgentHello("e9", "host9", joined.hello)))
    assert order.description == "joint model for joining agents"
    machine.run(machine.done(order))
    machine.now = 4.0
    for ack in machine.acks(order):
        out = machine.run(ack)
    assert machine.machine.state == "RUNNING"
    assert written(out, "pause") == [{"start": 1.5, "end": 4.0, "reason": why}]
    assert order_of(out).begin == [AgentRef("e9", 1, 1)]


def test_while_paused_a_joiner_is_told_once_to_download() -> None:
    machine = Machine(agents=2, min_agents=2)
    order = order_of(reducing(machine))
    machine.run(AgentDied("e1", 1, 0, 101, 137, ""))
    machine.run(OrderFailed(order.order, None, "cancelled", ["e0"]))
    machine.tell(Tick(), at=1.0)
    order = order_of(machine.run(hello(1, 1)))
    assert machine.run(machine.done(order)) == []
    assert "SubmitOrder" not in kinds(machine.tell(Tick(), at=2.0) + machine.tell(Tick(), at=6.0))
    assert kinds(machine.tell(Tick(), at=6.1))[-4:] == ["Withdraw"] * 3 + ["PublishJoint"]  # in vain: a newer one


def test_who_is_not_asked_is_left_out_with_the_reason() -> None:
    machine = Machine(agents=3)
    out = reducing(machine)
    machine.run(AgentDied("e1", 1, 0, 101, 137, "Killed"))
    lines = []
    while len(lines) < 6:  # what is frozen next is known when a line is written
        if len(lines) == 3:
            machine.run(hello(1, 1))
        out = machine.cycle(out)
        lines += written(out)
    said = [line["left_out"].get(1, "").partition(":") for line in lines]
    assert [head for head, _, _ in said] == ["", "", "starting", "starting", "starting", "joining"]
    assert said[2][2].startswith(" exit code 137: killed, by the kernel if memory was short")
    assert said[2][2].endswith("; last output: Killed")
    assert all({*line["contributors"], *line["left_out"]} == {0, 1, 2} for line in lines)


def test_an_agent_whose_executor_is_gone_or_that_is_late_or_has_finished_is_left_out_of_every_cycle() -> None:
    machine = Machine(agents=4)
    machine.late = {2: "no answer before the deadline"}
    out = reducing(machine)
    machine.run(AgentFinished("e3", 3, 0, b""))
    out += machine.run(ExecutorLost("e1", "exit code 137"))
    out = machine.run(OrderFailed(order_of([one for one in out if isinstance(one, SubmitOrder)]).order, "e1", "lost", ["e1"]))
    lines = []
    while len(lines) < 4:
        out = machine.cycle(out)
        lines += written(out)
    assert lines[-1]["left_out"] == {
        1: "starting: executor e1 lost: exit code 137",
        2: "late: no answer before the deadline",
        3: "finished: its train function returned",
    }


def test_who_hold_and_have_nothing_to_hand_over_take_the_joint_model_since_no_joint_state_will_come() -> None:
    machine = Machine(phases=1, shards=1, holds=True)
    out = machine.training()
    out = machine.run(machine.done(order_of(out), tau=0))
    order = order_of(out)
    assert (order.reduce, order.freeze) == (None, None)
    assert {(one.mode, *one.agents) for one in order.downloads} == {("replace", E0, E1)}
    out = machine.cycle(out)
    assert order_of(out).begin == [E0, E1]
    out = machine.cycle(out)
    assert order_of(out).freeze == Freeze(1, 0, [E0, E1]), "their executors would give the same for cycle 0"
    assert order_of(machine.cycle(out)).reduce == Reduce(1, 0, 8, [Part("e0", 4.0), Part("e1", 4.0)])


def test_one_of_those_who_hold_may_have_nothing_to_hand_over() -> None:
    machine = Machine(phases=1, shards=1, holds=True)
    order = order_of(machine.training())
    answers = [machine.answers(order, tau=tau)[agent] for agent, tau in ((0, 0), (1, 4))]
    out = machine.run(OrderDone(order.order, answers, 10.0, 12.0, 8))
    assert order_of(out).reduce.parts == [Part("e1", 4.0)]
