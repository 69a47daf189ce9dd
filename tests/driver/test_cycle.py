"""The driver's cycle by event lists: what goes out, exactly, and what is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from mpca.driver.cycle_record import CycleRecordBuilder
from mpca.driver.events import (
    AgentBack,
    AgentDied,
    AgentFailedEvent,
    AgentFinished,
    AgentHello,
    AgentsFound,
    Event,
    ExecutorDamages,
    ExecutorLost,
    ExecutorReady,
    HoldEnded,
    OrderDone,
    OrderFailed,
    Output,
    StopRequested,
    Tick,
)
from mpca.driver.instructions import (
    AdoptInitial,
    CancelOrder,
    CutOff,
    End,
    Rediscover,
    StartAgent,
    SubmitOrder,
    Withdraw,
    Write,
)
from mpca.errors import LocalProtocolError
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import Download, Freeze, Part, Rediscovered, Reduce, StopAgent
from tests.driver.support import Machine, hello, order_of, progress, written

E0, E1, E2 = AgentRef("e0", 0, 0), AgentRef("e1", 1, 0), AgentRef("e2", 2, 0)


def kinds(out: list[Any]) -> list[str]:
    return [type(one).__name__ for one in out]


# ---- the start -------------------------------------------------------------------------------------------------------


def test_an_executor_gets_an_agent_at_once() -> None:
    assert Machine().tell(ExecutorReady("e0", "host0", 2)) == [StartAgent(AgentRef("e0", 0, 0))]


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


def test_x0_is_of_one_agent_alone_though_the_first_source_dies_while_its_sum_is_made() -> None:
    machine = Machine(agents=2)
    machine.run(ExecutorReady("e0", "host0", 2))
    machine.run(ExecutorReady("e1", "host1", 2))
    machine.run(hello(0, x0="one"))
    out = machine.run(hello(1, x0="other"))
    for _ in range(3):  # shard 0 is frozen and summed, shard 1 is frozen
        out = machine.run(machine.done(order_of(out), tau=0))
    summing = order_of(out)
    assert summing.reduce is not None
    machine.run(AgentDied("e0", 0, 0, 100, 137, ""))
    out = machine.run(machine.done(summing, tau=0))
    assert not [one for one in out if isinstance(one, AdoptInitial)], "of an agent that is not the source any more"
    again = order_of(out)
    assert again.freeze is not None
    assert (again.freeze.shard, again.freeze.agents) == (0, [AgentRef("e1", 1, 0)])


def test_an_agent_with_another_x0_takes_the_joint_model_before_it_begins() -> None:
    machine = Machine()
    machine.run(ExecutorReady("e0", "host0", 2))
    machine.run(ExecutorReady("e1", "host1", 2))
    machine.run(hello(0))
    out = machine.run(hello(1, x0="another"))
    while order_of(out).description.startswith("read"):
        out = machine.run(machine.done(order_of(out), tau=0))
    order = order_of(out)
    assert order.begin == [E0]
    assert order.downloads == [Download(900 + shard, shard, 1, "replace", 8, [E1]) for shard in range(3)]


def test_another_model_ends_the_run_and_names_the_first_difference() -> None:
    machine = Machine()
    machine.run(ExecutorReady("e0", "host0", 2))
    machine.run(ExecutorReady("e1", "host1", 2))
    machine.run(hello(0))
    machine.run(hello(1, layout=[["weight", [7], "parameter", 0]]))
    assert machine.machine.state == "STOPPING"
    assert machine.machine.run.ending is not None
    assert "agent 0 has weight [6], agent 1 has weight [7]" in machine.machine.run.ending.reason
    assert machine.machine.run.ending.final, "the train function would build them again"


def test_other_bounds_of_the_same_tensors_end_the_run_too() -> None:
    machine = Machine()
    machine.run(ExecutorReady("e0", "host0", 2))
    machine.run(ExecutorReady("e1", "host1", 2))
    machine.run(hello(0))
    other = hello(1)
    machine.run(replace(other, hello=replace(other.hello, bounds=[0, 1, 4, 6])))
    assert machine.machine.state == "STOPPING"
    assert machine.machine.run.ending is not None
    assert machine.machine.run.ending.final


def test_too_few_hellos_in_time_end_the_run() -> None:
    machine = Machine(agents=3, min_agents=2)
    machine.run(ExecutorReady("e0", "host0", 2))
    machine.run(hello(0))
    assert machine.tell(Tick(), at=59.0) == []
    out = machine.tell(Tick(), at=60.0)
    assert order_of(out).stop[0][:3] == E0
    assert machine.machine.run.ending is not None
    assert (machine.machine.run.ending.status, machine.machine.run.ending.final) == ("failed", False)
    assert "1/3 agents called mpca.attach within cluster.start_timeout=60s" in machine.machine.run.ending.reason


def test_a_function_that_returns_without_attach_ends_the_run_when_it_does() -> None:
    machine = Machine(agents=2)
    for executor in ("e0", "e1"):
        machine.run(ExecutorReady(executor, "host", 2))
    end = machine.run(AgentFinished("e1", 1, 0, b""))[-1]
    assert (end.status, end.final) == ("failed", True)
    assert end.reason == (
        "agent 1 (executor e1): the train function returned without mpca.attach; "
        "call mpca.attach(model, optimizer) when both are made, before the loop"
    )


def test_the_start_is_given_up_with_a_word_on_attach_when_processes_run_and_on_logs_when_none_does() -> None:
    machine = Machine(agents=2)
    machine.run(ExecutorReady("e0", "host0", 2))
    machine.tell(Tick(), at=60.0)
    assert "0/2 agents called mpca.attach" in machine.machine.run.ending.reason
    assert "1 were started and have not: is it called, before the loop?" in machine.machine.run.ending.reason
    nobody = Machine(agents=2)
    nobody.tell(Tick(), at=60.0)
    assert "look at the logs of executors, or raise cluster.start_timeout" in nobody.machine.run.ending.reason


def test_a_silent_agent_is_told_of_a_minute_after_its_last_answer() -> None:
    machine = Machine(agents=2)
    out = reducing(machine)
    machine.now = 50.0
    out = machine.cycle(out)  # both hand a yield over
    machine.late = {1: "no answer before the deadline"}
    machine.run(machine.done(order_of(out)))
    assert machine.machine.run.table.agents[1].state == "LATE"

    def silent(at: float) -> list[tuple[int, str]]:
        said = written(machine.tell(Tick(), at=at), "agent")
        return [(one["index"], one["reason"]) for one in said if one["event"] == "silent"]

    assert silent(109.9) == []
    assert silent(110.0) == [(1, "has taken no optimizer step for 1m00s")]


def test_training_is_counted_from_when_all_agents_of_the_start_have_taken_an_update() -> None:
    machine = Machine(agents=3)
    out = machine.started()
    while order_of(out).description != "begin":
        out = machine.run(machine.done(order_of(out), tau=0))
    machine.run(machine.done(order_of(out)))
    for agent, at in ((0, 2.0), (2, 9.0)):
        assert machine.tell(progress(agent), at=at) == []
        assert machine.machine.began is None
    out = machine.tell(progress(1), at=20.0)
    assert machine.machine.began == 20.0
    assert [one.fields for one in out if isinstance(one, Write) and one.kind == "begin"] == [{"agents": 3}]
    for _ in range(3):
        machine.now += 1.0
        out = machine.cycle(out)
        assert not written(out, "begin")
    assert machine.machine.began == 20.0


@pytest.mark.parametrize("trains", [[0], []])
def test_training_is_counted_from_the_start_timeout_when_somebody_does_not_begin(trains: list[int]) -> None:
    machine = Machine(agents=3)
    out = machine.started()
    while order_of(out).description != "begin":
        out = machine.run(machine.done(order_of(out), tau=0))
    machine.run(machine.done(order_of(out)))
    for agent in trains:
        machine.run(progress(agent))
    assert machine.tell(Tick(), at=59.9) == []
    out = machine.tell(Tick(), at=60.0)
    assert machine.machine.began == 60.0
    assert written(out, "begin") == [{"agents": len(trains)}]


@pytest.mark.parametrize(("cycles", "status"), [(0, "failed"), (1, "max_time")])
def test_a_limit_that_is_met_before_the_first_commit_is_no_success(cycles: int, status: str) -> None:
    machine = Machine()
    out = machine.training()
    for _ in range(cycles + 1):  # the freeze of cycle 0, and its sum
        out = machine.cycle(out)
    machine.tell(OrderFailed(order_of(out).order, "x", "e0", []))
    machine.run(StopRequested("max_time", "5 s of training"))
    machine.tell(Tick(), at=machine.now + 3.0)
    machine.run(Tick())
    machine.tell(Tick(), at=machine.now + 400.0)  # nobody says a word: after `cluster.finish_timeout` nobody is waited for
    assert machine.machine.ended is not None
    assert machine.machine.ended.status == status
    assert any(machine.machine.exchange.versions) == bool(cycles)
    assert "5 s of training" in machine.machine.ended.reason


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


def test_alpha_goes_with_the_joint_state_by_the_mean_tau_of_its_own_exchange() -> None:
    machine = Machine(alpha_for=lambda tau: 0.5 / tau)
    out = machine.training()
    sent, told = {}, {}
    for tau in range(4, 15):  # the freeze of cycle n is answered with tau = 4 + n
        order = order_of(out)
        for one in order.downloads:
            sent[one.shard, one.version] = one.alpha
        for ack in machine.acks(order):
            machine.run(ack)
        out = machine.run(machine.done(order, tau=tau))
        for line in written(out):
            told[line["cycle"]] = line["alpha"]
    assert len(told) >= 8
    assert told == {cycle: 0.5 / (4 + cycle) for cycle in told}
    assert len(sent) >= 7
    assert sent == {(cycle % 3, cycle // 3 + 1): 0.5 / (4 + cycle) for cycle in range(len(sent))}


def test_agents_without_an_update_are_not_in_the_mean_tau() -> None:
    ledger = CycleRecordBuilder(contributors={0: {"tau": 6}, 1: {"tau": 0}, 2: {"tau": 10}})
    assert ledger.mean_tau() == 8.0
    assert CycleRecordBuilder(contributors={0: {"tau": 0}}).mean_tau() == 0.0


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


def frozen_apart(machine: Machine, cycles: int = 30) -> set[int]:
    """Cycles whose yields an order of its own asked for: one that reduces nothing."""
    apart = set()
    out = machine.training()
    for _ in range(2 * cycles):
        order = order_of(out)
        if order.reduce is None and order.freeze is not None:
            apart.add(order.freeze.cycle)
        out = machine.cycle(out)
    return apart - {0}  # the first has no cycle before it


@pytest.mark.parametrize(
    ("shards", "phases", "every"),
    [(3, 3, True), (2, 2, True), (3, 2, False), (4, 3, False), (5, 2, False), (12, 3, False)],
)
def test_the_next_shard_is_frozen_after_the_acknowledgements_exactly_when_it_is_being_downloaded(
    shards: int, phases: int, every: bool
) -> None:
    """Cycle n downloads what cycle n - 2 reduced (three phases) or n - 1 (two), and freezes shard n + 1."""
    waiting = frozen_apart(Machine(shards=shards, phases=phases, waits_for_shard=True))
    # the first download is of cycle P - 1, so the first freeze that may wait is of cycle P
    assert waiting == (set(range(phases, max(waiting) + 1)) if every else set())
    assert frozen_apart(Machine(shards=shards, phases=phases)) == set(), "an arrival between two batches waits for nothing"


def test_a_freeze_that_waits_goes_out_with_the_last_acknowledgement() -> None:
    machine = Machine(waits_for_shard=True)
    out = machine.training()
    for _ in range(3):
        out = machine.cycle(out)
    order = order_of(out)
    assert (order.reduce.cycle, order.freeze, [one.shard for one in order.downloads]) == (2, None, [0])
    assert machine.run(machine.done(order)) == []
    first, second = machine.acks(order)
    assert machine.run(first) == []
    assert order_of(machine.run(second)).freeze == Freeze(3, 0, [E0, E1])


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
    out = machine.tell(Tick(), at=5.5)
    assert written(out, "agent")[0]["reason"] == "its download was not acknowledged in time"
    assert order_of(out).freeze.agents == [E0]
    assert Rediscover(["e1"]) in machine.tell(Tick(), at=10.6)
    back = machine.run(machine.acks(order)[1])
    assert written(back, "agent")[0]["event"] == "rediscovered"


def awaiting(machine: Machine) -> Any:
    """The first broadcast is out, at 0 s; its order is done, and nobody has acknowledged. The order."""
    out = machine.training()
    for _ in range(3):
        out = machine.cycle(out)
    order = order_of(out)
    machine.run(machine.done(order))
    return order


def acknowledge(machine: Machine, order: Any, agents: list[int], at: float) -> list[Any]:
    out: list[Any] = []
    machine.now = at
    for ack in machine.acks(order):
        if ack.agent in agents:
            out += machine.run(ack)
    return out


@pytest.mark.parametrize(("took", "late_at"), [(0.1, 1.0), (0.5, 1.0), (1.5, 3.0)])
def test_one_that_has_not_acknowledged_within_two_mean_times_is_late_alone(took: float, late_at: float) -> None:
    machine = Machine(agents=3)
    order = awaiting(machine)
    assert acknowledge(machine, order, [0, 1], at=took) == []
    assert machine.tell(Tick(), at=late_at) == []
    out = machine.tell(Tick(), at=late_at + 0.1)
    (lost,) = written(out, "agent")
    assert (lost["index"], lost["reason"]) == (2, "its download was not acknowledged in time")
    assert [one["cycle"] for one in written(out)] == [2], "the cycle has ended"
    assert order_of(out).reduce.cycle == 3


def test_who_is_late_alone_gets_no_further_broadcast_until_it_has_acknowledged_this_one() -> None:
    machine = Machine(agents=3)
    order = awaiting(machine)
    (owed,) = (one.broadcast for one in order.downloads)
    acknowledge(machine, order, [0, 1], at=0.1)
    machine.now = 1.2
    out = machine.run(Tick())
    for _ in range(2):
        assert Withdraw(owed) not in out, "it may still come"
        (download,) = order_of(out).downloads
        assert download.agents == [E0, E1]
        assert 2 not in [one.agent for one in order_of(out).freeze.agents]
        out = machine.cycle(out)
    assert not [one for one in machine.tell(Tick(), at=4.9) if isinstance(one, Rediscover)], "nobody asks meanwhile"
    back = acknowledge(machine, order, [2], at=4.9)
    assert [(one["event"], one["index"]) for one in written(back, "agent")] == [("rediscovered", 2)]
    assert Withdraw(owed) in machine.run(Tick())
    out = machine.cycle(out)
    assert order_of(out).downloads[0].agents == [E0, E1, E2]
    assert owed in order_of(out).forget_broadcasts


def test_a_download_that_never_ends_is_given_up_at_the_deadline_and_its_agent_asked_for() -> None:
    machine = Machine(agents=3)
    order = awaiting(machine)
    (owed,) = (one.broadcast for one in order.downloads)
    acknowledge(machine, order, [0, 1], at=0.1)
    machine.tell(Tick(), at=1.2)
    assert Withdraw(owed) not in machine.tell(Tick(), at=5.0)
    assert Withdraw(owed) in machine.tell(Tick(), at=5.1)
    assert Rediscover(["e2"]) in machine.tell(Tick(), at=10.2)
    back = machine.run(AgentsFound("e2", [Rediscovered(2, 0, 102)]))
    assert [(one["event"], one["index"]) for one in written(back, "agent")] == [("rediscovered", 2)]


def test_while_most_have_not_acknowledged_nobody_is_late_before_the_deadline() -> None:
    machine = Machine(agents=3)
    order = awaiting(machine)
    acknowledge(machine, order, [0], at=0.1)
    assert machine.tell(Tick(), at=4.9) == []
    assert len(written(machine.tell(Tick(), at=5.1), "agent")) == 2


def test_an_order_that_goes_out_again_gives_its_downloads_their_time_again() -> None:
    machine = Machine(agents=4)
    out = machine.training()
    for _ in range(3):
        out = machine.cycle(out)
    order = order_of(out)
    acknowledge(machine, order, [0, 1, 2], at=0.1)
    machine.tell(ExecutorLost("e1", "exit code 137"), at=3.0)
    again = order_of(machine.run(OrderFailed(order.order, "e1", "lost", ["e1"])))
    assert again.downloads[0].agents == [AgentRef("e3", 3, 0)]
    machine.run(machine.done(again))
    assert machine.tell(Tick(), at=3.9) == []
    assert written(machine.tell(Tick(), at=4.1), "agent")[0]["index"] == 3


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
    parts = order_of(machine.run(Tick()))
    assert parts.executors == ["e0", "e1"], "its part of the sum is there"
    assert gone in parts.forget_broadcasts
    machine.tell(OrderFailed(parts.order, None, "no answer", ["e1"]), at=8.0)
    alone = order_of(machine.tell(Tick(), at=8.1) + machine.tell(Tick(), at=9.1))
    assert alone.executors == ["e0"]
    machine.run(AgentBack("e1", 1, 0))
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
    machine.tell(OrderFailed(order.order, None, "no answer", ["e1"]), at=8.0)
    assert written(machine.tell(Tick(), at=8.1), "agent")[0]["reason"] == "its download was not acknowledged in time"
    again = machine.tell(Tick(), at=9.1)
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
    assert said[2][2] == " exit code 137; last output: Killed"
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
    assert set(end._handlers) == set(get_args(Event))


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
    end = machine.run(AgentDied("e1", 1, 0, 101, 137, ""))[-1]
    assert end == End("max_time", "60 s of training", cut_off=(CutOff(1, "died: exit code 137", work_lost=False),))


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
