"""One cycle after the other by event lists: what goes out, exactly, and who is late with a download."""

from __future__ import annotations

from typing import Any

import pytest

from mpca.driver.cycle_record import CycleRecordBuilder
from mpca.driver.events import AgentBack, AgentsFound, ExecutorLost, OrderFailed, Tick
from mpca.driver.instructions import Rediscover, Withdraw
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import Freeze, Part, Rediscovered, Reduce
from tests.driver.support import E0, E1, E2, Machine, kinds, order_of, written


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
    machine = Machine(alpha_for=lambda tau, agents: 0.5 / tau)
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


def test_who_does_not_acknowledge_is_late_and_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    out = machine.training()
    for _ in range(3):
        out = machine.cycle(out)
    order = order_of(out)
    machine.run(machine.acks(order)[0])
    machine.run(machine.done(order))
    assert not caplog.records
    out = machine.tell(Tick(), at=5.5)
    assert [one.getMessage() for one in caplog.records] == [
        "agents=[1] have not received shard 0, cycle 0, within 5s, and train on without it; if their hosts are well, raise "
        "cluster.cycle_deadline, which is 5s, or method.shards"
    ]
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


def test_a_download_may_take_twice_as_long_as_the_one_before_took(caplog: pytest.LogCaptureFixture) -> None:
    """Where one takes 4 s of a deadline of 5 s, a lost executor's pieces that are fetched again make nobody late."""
    machine = Machine()
    out = acknowledge(machine, awaiting(machine), [0, 1], at=4.0)
    order = order_of(out)
    machine.run(machine.done(order))
    assert machine.tell(Tick(), at=4.0 + 7.9) == []
    assert kinds(acknowledge(machine, order, [0, 1], at=11.9))[0] == "Write"
    assert not caplog.records


def test_a_sum_may_take_twice_as_long_as_the_one_before_took() -> None:
    machine = Machine()
    order = order_of(machine.cycle(machine.training()))
    assert order.deadline == 5.0
    following = order_of(machine.run(machine.done(order, seconds=8.0)))
    assert following.reduce is not None
    assert following.deadline == 2 * 4.0


@pytest.mark.parametrize(("took", "late_at"), [(0.1, 1.0), (0.5, 1.0), (1.5, 3.0)])
def test_one_that_has_not_acknowledged_within_two_mean_times_is_late_alone(took: float, late_at: float) -> None:
    machine = Machine(agents=3)
    order = awaiting(machine)
    assert acknowledge(machine, order, [0, 1], at=took) == []
    assert machine.tell(Tick(), at=late_at) == []
    machine.now = late_at + 0.1
    out = machine.run(Tick())
    assert written(out, "agent") == [], "its download goes on: it is not lost"
    assert [one["cycle"] for one in written(out)] == [2], "the cycle has ended"
    assert order_of(out).reduce.cycle == 3
    out = machine.cycle(machine.cycle(out))
    assert written(out)[0]["left_out"] == {2: "late: its download was not acknowledged in time"}


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
    assert written(acknowledge(machine, order, [2], at=4.9), "agent") == [], "it was never lost, so it is not found again"
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
    in_time = machine.tell(Tick(), at=5.0)
    assert (Withdraw(owed) in in_time, written(in_time, "agent")) == (False, [])
    over = machine.tell(Tick(), at=5.1)
    assert Withdraw(owed) in over
    assert [(one["event"], one["index"]) for one in written(over, "agent")] == [("lost", 2)]
    assert Rediscover(["e2"]) in machine.tell(Tick(), at=10.2)
    back = machine.run(AgentsFound("e2", [Rediscovered(2, 0, 102)]))
    assert [(one["event"], one["index"]) for one in written(back, "agent")] == [("rediscovered", 2)]


def test_an_executor_that_dies_while_another_waits_for_its_pieces_is_the_only_loss() -> None:
    """The other's download takes longer than a second then, and the news of the death comes later still."""
    machine = Machine(agents=2)
    order = awaiting(machine)
    acknowledge(machine, order, [1], at=0.1)
    out = machine.tell(Tick(), at=1.2)
    out += acknowledge(machine, order, [0], at=1.7)
    out += machine.tell(ExecutorLost("e1", "exit code 137"), at=1.8)
    assert [(one["event"], one["index"]) for one in written(out, "agent")] == [("lost", 1)]


def test_who_dies_while_its_download_goes_on_is_lost_once_and_by_its_death() -> None:
    machine = Machine(agents=3)
    order = awaiting(machine)
    acknowledge(machine, order, [0, 1], at=0.1)
    out = machine.tell(Tick(), at=1.2)
    out += machine.tell(ExecutorLost("e2", "preempted"), at=1.8)
    out += machine.tell(Tick(), at=5.3)
    (lost,) = written(out, "agent")
    assert (lost["index"], lost["reason"]) == (2, "executor e2 lost: preempted")


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
    assert [one["cycle"] for one in written(machine.tell(Tick(), at=4.1))] == [2], "without agent 3"


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
