"""Who takes the joint model before it begins, and whose word counts for having it."""

from __future__ import annotations

from dataclasses import replace

from mpca.driver.events import AgentDied
from mpca.driver.instructions import SubmitOrder
from mpca.wire.agent_ref import AgentRef
from tests.driver.support import Machine, hello, order_of


def test_acknowledgements_make_nobody_ready_whom_the_joint_model_was_not_sent_to() -> None:
    """Agent 2 says hello when the joint model for agent 1 is on its way: it takes a newer one, whatever arrives by its name."""
    machine = Machine(agents=3)
    out = machine.cycle(machine.training())
    machine.run(AgentDied("e1", 1, 0, 101, 137, ""))
    machine.run(hello(1, incarnation=1))
    order = order_of(machine.run(machine.done(order_of(out))))
    machine.run(AgentDied("e2", 2, 0, 102, 137, ""))
    machine.run(hello(2, incarnation=1))
    joint = {one.broadcast for one in order.downloads if one.mode == "replace"}
    assert len(joint) == 3
    for ack in machine.acks(order):
        if ack.broadcast in joint:
            assert machine.run(replace(ack, executor="e2", agent=2, incarnation=1)) == []
    following = order_of(machine.cycle([SubmitOrder(order)]))
    assert following.begin == [AgentRef("e1", 1, 1)]
    assert [one.agents for one in following.downloads if one.mode == "replace"] == [[AgentRef("e2", 2, 1)]] * 3
