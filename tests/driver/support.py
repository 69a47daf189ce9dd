"""A driver's state machine by hand: events in, instructions out, orders answered as executors would."""

from __future__ import annotations

import math
from typing import Any

from mpca.driver.agent_table import AgentTable
from mpca.driver.cycle import CycleMachine
from mpca.driver.events import (
    Acknowledged,
    AgentHello,
    AgentProgress,
    ExchangeServed,
    ExecutorReady,
    Initial,
    JointPublished,
    JointRestored,
    OrderDone,
    Prepared,
)
from mpca.driver.instructions import AdoptInitial, CutJoint, Prepare, PublishJoint, Serve, SubmitOrder, Write
from mpca.driver.run_shape import RunShape
from mpca.wire.agent_ref import AgentId, AgentRef
from mpca.wire.messages import Hello
from mpca.wire.orders import Answer, Frozen, Late, LateCode, Order

LAYOUT = [["weight", [6], "parameter", 0]]
E0, E1, E2 = AgentRef("e0", 0, 0), AgentRef("e1", 1, 0), AgentRef("e2", 2, 0)


def kinds(out: list[Any]) -> list[str]:
    return [type(one).__name__ for one in out]


def hello(agent: int, incarnation: int = 0, x0: str = "x0", layout: list[Any] = LAYOUT, shards: int = 3) -> AgentHello:
    said = Hello(
        agent=agent, incarnation=incarnation, pid=100 + agent, python="3", torch="2", mpca="0", x0_hash=x0, layout=layout,
        local={}, tied={}, bounds=[2 * edge for edge in range(shards + 1)], parameters=6, segment_fd=3, segment_bytes=4096,
        slots=[],
    )  # fmt: skip
    return AgentHello(f"e{agent}", f"host{agent}", said)


def progress(agent: int, incarnation: int = 0) -> AgentProgress:
    return AgentProgress(agent, incarnation, 1, 1, 0.0, 0.0, {})


class Machine:
    """`agents` agents, `per_executor` on each executor (e0, e1, ...)."""

    kind: Any = CycleMachine

    def __init__(
        self, agents: int = 2, phases: int = 3, min_agents: int = 1, shards: int = 3, per_executor: int = 1, **shape: Any
    ) -> None:
        self.now = 0.0
        self.machine = self.kind(
            RunShape(
                run="r", term=1, shards=shards, phases=phases, exchanges=True, min_agents=min_agents, deadline_s=5.0,
                start_timeout_s=60.0, **shape,
            ),
            AgentTable(agents, per_executor),
            self.now,
        )  # fmt: skip
        self.agents, self.shards, self.per_executor = agents, shards, per_executor
        self.sums = 0
        self.late: dict[int, str] = {}
        self.nan: set[int] = set()
        self.moved: dict[int, float] = {}  # how far, of those whose distance is not 1
        self.gone: set[str] = set()

    def tell(self, event: Any, at: float | None = None) -> list[Any]:
        self.now = self.now if at is None else at
        return self.machine.handle(event, self.now)

    # ---- what executors answer

    def answers(self, order: Order, tau: int = 4, seconds: float = 1.0) -> list[Answer]:
        said = []
        for name in order.executors:
            frozen, late = [], {}
            asked = order.freeze.agents if order.freeze else []
            for who in (one for one in asked if one.executor == name):
                if who.agent in self.late:
                    late[who.agent] = Late(LateCode.DEADLINE, self.late[who.agent])
                else:
                    frozen.append(self.frozen(who.id, tau))
            weight = float(sum(one.tau for one in frozen if one.finite))
            said.append(Answer(name, name, frozen, late, weight, 10.0, 10.0 + seconds, 8, 2))
        return said

    def frozen(self, who: AgentId, tau: int) -> Frozen:
        finite = who.agent not in self.nan
        return Frozen(*who, tau, 7, finite, self.moved.get(who.agent, 1.0) if finite else math.nan, 1.0, 1.5)

    def done(self, order: Order, tau: int = 4, seconds: float = 2.0) -> OrderDone:
        return OrderDone(order.order, self.answers(order, tau, seconds / 2), 10.0, 10.0 + seconds, 8)

    @staticmethod
    def acks(order: Order) -> list[Acknowledged]:
        return [Acknowledged(one.broadcast, *who, 10.0, 11.0, one.length) for one in order.downloads for who in one.agents]

    # ---- the shell: what it answers at once

    def run(self, event: Any) -> list[Any]:
        """Tell, and answer Prepare, AdoptInitial and PublishJoint as the runner does."""
        queue, out = [event], []
        while queue:
            for one in self.tell(queue.pop(0)):
                out.append(one)
                if isinstance(one, AdoptInitial):
                    queue.append(Initial(one.shard))
                elif isinstance(one, CutJoint):
                    self.shards = one.shards
                    queue.append(JointRestored((0,) * one.shards))  # the runner waits for the next hello with it
                elif isinstance(one, Prepare):
                    self.sums += 1
                    queue.append(Prepared(one.cycle, one.shard, 500 + one.cycle, one.cycle // self.shards + 1, 1.0, 2.0))
                elif isinstance(one, Serve):
                    self.sums += one.take
                    queue.append(ExchangeServed(one.sent, one.take, one.reason, self.sums, 2, 0.5, self.now + 0.25))
                elif isinstance(one, PublishJoint):
                    queue.append(JointPublished([(shard, 900 + shard, 1, 8) for shard in range(self.shards)]))
        return out

    def started(self) -> list[Any]:
        """All executors and agents are there; the answer has the first order."""
        out = []
        for executor in range(-(-self.agents // self.per_executor)):
            self.run(ExecutorReady(f"e{executor}", f"host{executor}", 2 * self.per_executor))
        for agent in range(self.agents):
            out = self.run(hello(agent, shards=self.shards))
        return out

    def training(self) -> list[Any]:
        """Up to the first freeze of the first cycle."""
        out = self.started()
        while order_of(out).description != "begin":
            out = self.run(self.done(order_of(out), tau=0))
        self.run(self.done(order_of(out)))
        for agent in range(self.agents):
            out = self.run(progress(agent))
        return out

    def cycle(self, out: list[Any]) -> list[Any]:
        """Answer the order in `out`, with its acknowledgements."""
        order = order_of(out)
        for ack in self.acks(order):
            self.run(ack)
        return self.run(self.done(order))


def order_of(out: list[Any]) -> Order:
    orders = [one.order for one in out if isinstance(one, SubmitOrder)]
    assert len(orders) == 1, out
    return orders[0]


def written(out: list[Any], kind: str = "cycle") -> list[dict[str, Any]]:
    return [one.fields for one in out if isinstance(one, Write) and one.kind == kind]


def reducing(machine: Machine) -> list[Any]:
    """The order that reduces cycle 0 is out."""
    return machine.cycle(machine.training())
