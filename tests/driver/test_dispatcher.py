"""Orders in flight: when one is given up, and what goes out again."""

from __future__ import annotations

from mpca.driver.events import ExecutorLost, OrderFailed, Tick
from mpca.driver.instructions import CancelOrder
from mpca.wire.agent_ref import AgentRef
from tests.driver.support import Machine, order_of


def test_an_order_is_cancelled_two_seconds_after_its_own_deadline_and_once() -> None:
    """Executors end their waits at the deadline itself; who answers then is heard, and a whole deadline is not waited again."""
    machine = Machine()
    out = machine.training()
    machine.now = 3.0
    order = order_of(machine.cycle(out))
    assert order.deadline == 8.0
    for at in (5.1, 8.1, 10.0):
        assert machine.tell(Tick(), at=at) == []
    assert machine.tell(Tick(), at=10.1) == [CancelOrder(order.order, "no answer within 5s (cluster.cycle_deadline=5s)")]
    assert machine.tell(Tick(), at=10.2) == [], "once"
    out = machine.run(machine.done(order))
    later = order_of(out)
    assert later.deadline == 15.2
    assert machine.tell(Tick(), at=17.2) == []
    assert machine.tell(Tick(), at=17.3) == [CancelOrder(later.order, "no answer within 5s (cluster.cycle_deadline=5s)")]


def test_who_was_to_begin_by_an_order_that_failed_is_told_again() -> None:
    """Whether they heard is not known; told twice does no harm, told never trains nothing."""
    machine = Machine(agents=3)
    out = machine.started()
    while order_of(out).description != "begin":
        out = machine.run(machine.done(order_of(out), tau=0))
    order = order_of(out)
    assert len(order.begin) == 3
    machine.run(ExecutorLost("e2", "exit code 137"))
    again = order_of(machine.run(OrderFailed(order.order, "e2", "lost", ["e2"])))
    assert again.begin == [AgentRef("e0", 0, 0), AgentRef("e1", 1, 0)]
