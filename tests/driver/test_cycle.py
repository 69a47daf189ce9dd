"""The driver's cycle by event lists: what goes out, exactly, and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from mpca.driver import cluster as c
from mpca.driver import instructions as i
from mpca.wire.orders import Download, Freeze, Part, Reduce
from tests.driver.support import Machine, hello, order_of, progress, written

E0, E1, E2 = ["e0", 0, 0], ["e1", 1, 0], ["e2", 2, 0]


def kinds(out: list[Any]) -> list[str]:
    return [type(one).__name__ for one in out]


# ---- the start -------------------------------------------------------------------------------------------------------


def test_an_executor_gets_an_agent_at_once() -> None:
    assert Machine().tell(c.ExecutorReady("e0", "host0", 2)) == [i.StartAgent(0, 0, "e0")]


def test_x0_is_read_from_the_first_agent_shard_by_shard_with_weight_one() -> None:
    machine = Machine()
    out = machine.started()
    freezes, reduces = [], []
    while order_of(out).description != "begin":
        order = order_of(out)
        freezes += [order.freeze] if order.freeze else []
        reduces += [order.reduce] if order.reduce else []
        out = machine.run(machine.done(order, tau=0))
    assert freezes == [Freeze(cycle, cycle + 3, [E0]) for cycle in (-3, -2, -1)]
    assert reduces == [Reduce(cycle, cycle + 3, 8, [Part("e0", 1.0)]) for cycle in (-3, -2, -1)]
    assert order_of(out).begin == [E0, E1]
    assert machine.sums == 0


def test_an_agent_with_another_x0_takes_the_joint_model_before_it_begins() -> None:
    machine = Machine()
    machine.run(c.ExecutorReady("e0", "host0", 2))
    machine.run(c.ExecutorReady("e1", "host1", 2))
    machine.run(hello(0))
    out = machine.run(hello(1, x0="another"))
    while order_of(out).description.startswith("read"):
        out = machine.run(machine.done(order_of(out), tau=0))
    order = order_of(out)
    assert order.begin == [E0]
    assert order.downloads == [Download(900 + shard, shard, 1, "replace", 8, [E1]) for shard in range(3)]


def test_another_model_ends_the_run_and_names_the_first_difference() -> None:
    machine = Machine()
    machine.run(c.ExecutorReady("e0", "host0", 2))
    machine.run(c.ExecutorReady("e1", "host1", 2))
    machine.run(hello(0))
    machine.run(hello(1, layout=[["weight", [7], "parameter", 0]]))
    assert machine.machine.stage == "STOPPING"
    assert machine.machine._ending is not None
    assert "agent 0 has weight [6], agent 1 has weight [7]" in machine.machine._ending.reason
    assert machine.machine._ending.final, "the train function would build them again"


def test_too_few_hellos_in_time_end_the_run() -> None:
    machine = Machine(agents=3, min_agents=2)
    machine.run(c.ExecutorReady("e0", "host0", 2))
    machine.run(hello(0))
    assert machine.tell(i.Tick(), at=59.0) == []
    out = machine.tell(i.Tick(), at=60.0)
    assert order_of(out).stop[0][:3] == E0
    assert machine.machine._ending is not None
    assert (machine.machine._ending.status, machine.machine._ending.final) == ("failed", False)
    assert "1/3 agents said hello within cluster.start_timeout=60s" in machine.machine._ending.reason


# ---- cycles ----------------------------------------------------------------------------------------------------------


def test_three_phases_reduce_prepare_and_broadcast_three_cycles_in_one_job() -> None:
    machine = Machine()
    out = machine.training()
    assert order_of(out).freeze == Freeze(0, 0, [E0, E1])
    orders = []
    for _ in range(5):
        out = machine.cycle(out)
        orders.append(order_of(out))
    assert [(o.reduce.cycle, o.freeze.cycle, [d.broadcast for d in o.downloads]) for o in orders if o.reduce and o.freeze] == [
        (0, 1, []),
        (1, 2, []),
        (2, 3, [500]),  # the sum of cycle 0 was prepared in cycle 1
        (3, 4, [501]),
        (4, 5, [502]),
    ]
    assert orders[3].reduce == Reduce(3, 0, 8, [Part("e0", 4.0), Part("e1", 4.0)])
    assert orders[3].forget_cycle == 2
    assert orders[3].forget_broadcasts == [500]


def test_two_phases_prepare_at_the_end_of_their_cycle() -> None:
    machine = Machine(phases=2)
    out = machine.cycle(machine.training())
    downloads = []
    for _ in range(3):
        out = machine.cycle(out)
        downloads.append([one.broadcast for one in order_of(out).downloads])
    assert downloads == [[500], [501], [502]]


def test_one_phase_does_one_thing_after_the_other() -> None:
    machine = Machine(phases=1)
    out = machine.training()
    seen = []
    for _ in range(6):
        order = order_of(out)
        seen.append((order.freeze is not None, order.reduce is not None, [one.broadcast for one in order.downloads]))
        out = machine.cycle(out)
    assert seen == [
        (freeze, reduce, downloads)
        for broadcast in (500, 501)
        for freeze, reduce, downloads in [(True, False, []), (False, True, []), (False, False, [broadcast])]
    ]


def test_a_cycle_waits_for_the_acknowledgements_of_its_download() -> None:
    machine = Machine()
    out = machine.training()
    for _ in range(3):
        out = machine.cycle(out)
    order = order_of(out)
    assert machine.run(machine.done(order)) == []
    first, second = machine.acks(order)
    assert machine.run(first) == []
    assert kinds(machine.run(second)) == ["Write", "Withdraw", "SubmitOrder", "Prepare"]


def test_who_does_not_acknowledge_is_late_and_asked_for_again() -> None:
    machine = Machine()
    out = machine.training()
    for _ in range(3):
        out = machine.cycle(out)
    order = order_of(out)
    machine.run(machine.acks(order)[0])
    machine.run(machine.done(order))
    out = machine.tell(i.Tick(), at=5.5)
    assert written(out, "agent")[0]["reason"] == "its download was not acknowledged in time"
    assert order_of(out).freeze.agents == [E0]
    assert i.Rediscover(["e1"]) in machine.tell(i.Tick(), at=10.6)
    back = machine.run(machine.acks(order)[1])
    assert written(back, "agent")[0]["event"] == "rediscovered"


def test_an_executor_that_was_late_hears_which_broadcasts_are_gone_meanwhile() -> None:
    """It would go on trying to fetch them otherwise, one download after the other, and never come to the newest."""
    machine = Machine()
    out = machine.training()
    for _ in range(3):
        out = machine.cycle(out)
    order = order_of(out)
    (gone,) = (one.broadcast for one in order.downloads)
    machine.run(machine.acks(order)[0])
    machine.run(machine.done(order))
    machine.now = 5.5
    parts = order_of(machine.run(i.Tick()))
    assert parts.executors == ["e0", "e1"], "its part of the sum is there"
    assert gone in parts.forget_broadcasts
    machine.tell(c.OrderFailed(parts.order, None, "no answer", ["e1"]), at=8.0)
    alone = order_of(machine.tell(i.Tick(), at=8.1) + machine.tell(i.Tick(), at=9.1))
    assert alone.executors == ["e0"]
    machine.run(c.AgentBack("e1", 1, 0))
    for ack in machine.acks(alone):
        machine.run(ack)
    both = order_of(machine.run(machine.done(alone)))
    assert both.executors == ["e0", "e1"]
    assert gone in both.forget_broadcasts
    for ack in machine.acks(both):
        machine.run(ack)
    assert gone not in order_of(machine.run(machine.done(both))).forget_broadcasts


# ---- losing agents and executors ---------------------------------------------------------------------------------------


def reducing(machine: Machine) -> list[Any]:
    """The order that reduces cycle 0 is out."""
    return machine.cycle(machine.training())


def test_a_lost_executor_is_left_out_and_the_same_cycle_goes_out_again() -> None:
    machine = Machine(agents=3)
    order = order_of(reducing(machine))
    assert [part.executor for part in order.reduce.parts] == ["e0", "e1", "e2"]
    assert i.CancelOrder(order.order, "executor e1 lost") in machine.run(c.ExecutorLost("e1", "exit code 137"))
    again = order_of(machine.run(c.OrderFailed(order.order, "e1", "FetchFailed", ["e0", "e1", "e2"])))
    assert again.order == order.order + 1
    assert again.reduce == Reduce(0, 0, 8, [Part("e0", 4.0), Part("e2", 4.0)])
    assert again.freeze == Freeze(1, 1, [E0, E2])
    (line,) = written(machine.cycle([i.SubmitOrder(again)]))
    assert sorted(line["contributors"]) == [0, 2]
    assert line["left_out"] == {1: "executor e1 lost"}
    assert line["submissions"] == 2


def test_a_failure_that_no_loss_explains_leaves_out_the_executor_that_failed_and_nobody_else() -> None:
    machine = Machine(agents=3)
    order = order_of(reducing(machine))
    assert machine.run(c.OrderFailed(order.order, "e1", "WrongExecutor", ["e0", "e1", "e2"])) == []
    out = machine.tell(i.Tick(), at=1.0)
    assert [one["index"] for one in written(out, "agent")] == [1]
    assert order_of(out).reduce == Reduce(0, 0, 8, [Part("e0", 4.0), Part("e2", 4.0)])


def test_an_executor_that_did_not_end_is_left_out_with_a_reason_though_its_agent_is_late_already() -> None:
    """A stopped executor acknowledges nothing either: that is noticed while the failed order has its moment of grace."""
    machine = Machine(agents=3)
    out = machine.training()
    for _ in range(3):
        out = machine.cycle(out)
    order = order_of(out)
    for ack in machine.acks(order):
        if ack.agent != 1:
            machine.run(ack)
    machine.tell(c.OrderFailed(order.order, None, "no answer", ["e1"]), at=8.0)
    assert written(machine.tell(i.Tick(), at=8.1), "agent")[0]["reason"] == "its download was not acknowledged in time"
    again = machine.tell(i.Tick(), at=9.1)
    assert [part.executor for part in order_of(again).reduce.parts] == ["e0", "e2"]
    (line,) = written(machine.cycle(again))
    assert line["left_out"] == {1: "no answer"}


def test_a_snapshot_of_an_agent_that_died_after_it_counts() -> None:
    machine = Machine()
    order = order_of(reducing(machine))
    assert kinds(machine.run(c.AgentDied("e1", 1, 0, 101, 137, ""))) == ["Write", "StartAgent"]
    (line,) = written(machine.run(machine.done(order)))
    assert sorted(line["contributors"]) == [0, 1]
    assert line["contributors"][1]["incarnation"] == 0


def test_a_replacement_takes_the_joint_model_and_begins_when_all_of_it_has_arrived() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.run(c.AgentDied("e1", 1, 0, 101, 137, ""))
    machine.run(hello(1, incarnation=1))
    out = machine.run(machine.done(order_of(out)))
    order = order_of(out)
    assert [(one.shard, one.mode, one.agents) for one in order.downloads] == [(s, "replace", [["e1", 1, 1]]) for s in range(3)]
    assert order.begin == []
    out = machine.cycle([i.SubmitOrder(order)])
    assert order_of(out).begin == [["e1", 1, 1]]
    assert [one.broadcast for one in machine.tell(i.Tick()) if isinstance(one, i.Withdraw)] == []
    machine.run(progress(1, 1))
    assert order_of(machine.cycle(out)).freeze.agents == [E0, ["e1", 1, 1]]


def test_a_cycle_waits_for_a_joiners_download_so_that_its_base_is_young() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.run(c.AgentDied("e1", 1, 0, 101, 137, ""))
    machine.run(hello(1, incarnation=1))
    order = order_of(machine.run(machine.done(order_of(out))))
    assert written(machine.run(machine.done(order))) == []
    *some, last = machine.acks(order)
    assert [written(machine.run(ack)) for ack in some] == [[], []]
    assert len(written(machine.run(last))) == 1


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
    assert written(machine.run(c.AgentBack("e1", 1, 0)), "agent")[0]["event"] == "rediscovered"
    out = machine.run(machine.done(order))
    assert written(out)[0]["left_out"] == {1: "no answer before the deadline"}
    assert order_of(out).freeze.agents == [E0, E1]


def test_an_agent_that_is_back_before_it_is_known_to_be_late_stays_in() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.late = {1: "no answer before the deadline"}
    machine.run(c.AgentBack("e1", 1, 0))
    out = machine.run(machine.done(order_of(out)))
    assert written(out, "agent") == []
    assert order_of(out).freeze.agents == [E0, E1]


def test_below_min_agents_the_run_pauses_with_a_reason_and_goes_on_by_itself() -> None:
    machine = Machine(agents=3, min_agents=3)
    order = order_of(reducing(machine))
    machine.run(c.ExecutorLost("e1", "exit code 137"))
    out = machine.run(c.OrderFailed(order.order, "e1", "lost"))
    assert machine.machine.stage == "PAUSED"
    assert written(out, "pause") == [{"start": 0.0, "end": None, "reason": "2 of 3 agents alive, min_agents=3"}]
    assert i.StartAgent(1, 1, "e9") in machine.run(c.ExecutorReady("e9", "host9", 2))
    joined = hello(1, 1)
    order = order_of(machine.run(c.AgentHello("e9", "host9", joined.hello)))
    assert order.description == "joint model for joining agents"
    machine.run(machine.done(order))
    for ack in machine.acks(order):
        out = machine.run(ack)
    assert machine.machine.stage == "RUNNING"
    assert written(out, "pause")[0]["end"] == 0.0
    assert order_of(out).begin == [["e9", 1, 1]]


def test_while_paused_a_joiner_is_told_once_to_download() -> None:
    machine = Machine(agents=2, min_agents=2)
    order = order_of(reducing(machine))
    machine.run(c.AgentDied("e1", 1, 0, 101, 137, ""))
    machine.run(c.OrderFailed(order.order, None, "cancelled", ["e0"]))
    machine.tell(i.Tick(), at=1.0)
    order = order_of(machine.run(hello(1, 1)))
    assert machine.run(machine.done(order)) == []
    assert "SubmitOrder" not in kinds(machine.tell(i.Tick(), at=2.0) + machine.tell(i.Tick(), at=6.0))
    assert kinds(machine.tell(i.Tick(), at=6.1))[-4:] == ["Withdraw"] * 3 + ["PublishJoint"]  # in vain: a newer one


def test_what_is_not_finite_never_enters_and_its_agent_takes_the_joint_model() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.nan = {1}
    out = machine.run(machine.done(order_of(out)))
    order = order_of(out)
    assert order.reduce == Reduce(1, 1, 8, [Part("e0", 4.0)])
    assert [(one.mode, one.agents) for one in order.downloads] == [("replace", [E1])] * 3
    machine.nan = set()
    out = machine.cycle([i.SubmitOrder(order)])
    assert written(out)[0]["left_out"] == {1: "not finite"}
    assert order_of(out).begin == [E1]
    assert order_of(machine.cycle(out)).freeze.agents == [E0, E1]


def test_an_agent_that_is_ruined_again_and_again_is_started_anew() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.nan = {1}  # after every joint model that it takes
    asked = 0
    while not any(isinstance(one, i.StartAgent) for one in out):
        freeze = order_of(out).freeze
        asked += freeze is not None and E1 in freeze.agents
        out = machine.cycle(out)
    assert asked == 3
    assert [one.incarnation for one in out if isinstance(one, i.StartAgent)] == [1]
    (lost,) = written(out, "agent")
    assert (lost["event"], lost["index"], lost["incarnation"]) == ("lost", 1, 0)
    assert lost["reason"] == "its parameters were not finite 3 times within 10 exchanges"


def test_when_no_agent_is_finite_the_run_ends_with_the_last_joint_model() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.nan = {0, 1}
    machine.run(machine.done(order_of(out)))
    ending = machine.machine._ending
    assert (ending.status, ending.final) == ("failed", True)
    assert "all 2 agents are not finite in cycle 1" in ending.reason
    assert "optimizer.lr" in ending.reason


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


# ---- fences ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        hello(1, 0),
        c.AgentDied("e1", 1, 0, 101, 137, ""),
        c.AgentFailedEvent("e1", "host1", 1, 0, "ValueError: x", "traceback"),
        c.AgentFinished("e1", 1, 0, b""),
        c.AgentBack("e1", 1, 0),
        c.HoldEnded(1, 0, "ended"),
        progress(1, 0),
        c.OrderDone(1, [], 0.0, 0.0, 0),
        c.OrderFailed(1, "e1", "lost"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_an_older_incarnation_or_order_says_changes_nothing(event: Any) -> None:
    machine = Machine()
    reducing(machine)
    machine.run(c.AgentDied("e1", 1, 0, 101, 137, ""))
    before = [(one.state, one.incarnation) for one in machine.machine.roster.agents]
    assert machine.run(event) == []
    assert [(one.state, one.incarnation) for one in machine.machine.roster.agents] == before


def test_a_yield_of_an_incarnation_that_was_not_asked_is_not_taken() -> None:
    machine = Machine()
    order = order_of(reducing(machine))
    answers = machine.answers(order)
    answers[1].frozen[0] = type(answers[1].frozen[0])(1, 7, 4, 7, True, 1.0, 1.5)
    out = machine.run(c.OrderDone(order.order, answers, 10.0, 12.0, 8))
    assert sorted(part.executor for part in order_of(out).reduce.parts) == ["e0"]


# ---- the end -------------------------------------------------------------------------------------------------------------


def test_a_stop_prepares_the_last_sum_writes_its_line_and_then_tells_the_agents() -> None:
    machine = Machine()
    out = reducing(machine)
    assert machine.run(i.StopRequested("max_cycles", "1 cycles")) == []
    order = order_of(out)
    out = machine.run(machine.done(order))
    assert kinds(out) == ["Prepare", "Write", "SubmitOrder"]
    assert order_of(out).stop == [[*E0, "1 cycles"], [*E1, "1 cycles"]]
    machine.run(c.AgentFinished("e0", 0, 0, b""))
    machine.run(machine.done(order_of(out)))
    assert machine.run(c.AgentFinished("e1", 1, 0, b""))[-1] == i.End("max_cycles", "1 cycles")
    assert machine.machine.stage == "CLOSED"


def test_a_stop_does_not_wait_for_ever() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.run(i.StopRequested("interrupted", "Ctrl-C"))
    out = machine.tell(i.Tick(), at=2.5)
    assert kinds(out)[0] == "CancelOrder"
    assert order_of(out).stop
    assert machine.tell(i.Tick(), at=7.0)[-1] == i.End("interrupted", "Ctrl-C")


def test_an_error_of_the_users_code_ends_the_run_with_its_traceback() -> None:
    machine = Machine()
    order = order_of(reducing(machine))
    machine.run(c.AgentFailedEvent("e1", "host1", 1, 0, "ValueError: no", "Traceback ..."))
    assert [stop[:3] for stop in order_of(machine.run(machine.done(order))).stop] == [E0], "nobody waits for who is gone"
    why = "agent 1 (host host1, executor e1) raised ValueError: no\nTraceback ..."
    assert machine.machine._ending == i.StopRequested("failed", why, final=True)


def test_when_every_train_function_has_returned_the_run_has_reached_its_end() -> None:
    machine = Machine()
    out = reducing(machine)
    machine.run(c.AgentFinished("e0", 0, 0, b""))
    machine.run(c.AgentFinished("e1", 1, 0, b""))
    out = machine.run(machine.done(order_of(out)))
    assert out[-1] == i.End("reached", "every train function returned")


def test_a_broadcast_whose_cycle_did_not_come_about_is_withdrawn_when_a_newer_one_is_ready() -> None:
    machine = Machine(agents=2, min_agents=2)
    out = machine.training()
    for _ in range(3):
        out = machine.cycle(out)
    order = order_of(out)  # cycle 2: 500 is being downloaded, 501 was prepared meanwhile
    machine.run(c.ExecutorLost("e1", "exit code 137"))
    out = machine.run(c.OrderFailed(order.order, "e1", "lost"))
    assert machine.machine.stage == "PAUSED"
    assert [one.broadcast for one in out if isinstance(one, i.Withdraw)] == [500]
