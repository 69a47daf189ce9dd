"""What the driver's machines share: it hands each event to the part that it concerns.

A machine opens nothing, reads no clock and holds no parameters: `handle(event, now)` returns instructions for the shell. The
states of a run and of its agents are in `states.py`. `starting.py`, `stopping.py` and a form of `running.py` decide what comes
next; `failures.py` decides what follows a failed order.

Irregular flow:

* *A job fails*: the driver leaves out the executors that are known to be lost and submits what the job was for again; frozen
  snapshots make that free. When no executor is known to be lost after a moment's grace, the driver leaves out the executor
  that failed, as late, and asks it again by rediscovery.
* *Bytes of an executor are damaged twice*: the driver leaves that executor out of all ranges at once, and asks it again only
  after `BARRED_S`.
* *An agent is late*: its snapshot was not frozen at the deadline. It is in no order until it answers.
* *An agent joins*: see `joining.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpca.driver.events import (
    Acknowledged,
    AgentBack,
    AgentDied,
    AgentFailedEvent,
    AgentFinished,
    AgentHello,
    AgentProgress,
    AgentsFound,
    Event,
    ExecutorDamages,
    ExecutorLost,
    ExecutorReady,
    HoldEnded,
    Initial,
    JointPublished,
    JointRestored,
    OrderDone,
    OrderFailed,
    Prepared,
    ReadLocal,
    SaveAgents,
    StopRequested,
    Tick,
)
from mpca.driver.failures import Failures
from mpca.driver.instructions import End, Instruction
from mpca.driver.run import Run, Step
from mpca.driver.run_shape import RunShape
from mpca.driver.running import Running
from mpca.driver.snapshots import ShardSnapshots
from mpca.driver.starting import Starting
from mpca.driver.states import AgentState, RunState
from mpca.driver.stopping import Stopping
from mpca.errors import LocalProtocolError
from mpca.wire.messages import RETURNED
from mpca.wire.orders import Order

__all__ = ["RunMachine"]


class RunMachine:
    """See the module's text; `machine.Machine` documents what it shows.

    Args:
        run: what its parts share.
        exchange: decides while the run goes on.
    """

    def __init__(self, run: Run, exchange: Running) -> None:
        self.run, self.exchange = run, exchange
        self.starting = Starting(run)
        self.stopping = Stopping(self.run, self.exchange)
        self.failures = Failures(self.run, self.exchange)
        self._handlers: dict[type, Callable[[Any, float], list[Instruction]]] = {
            ExecutorReady: self._on_executor_ready,
            ExecutorLost: self._on_executor_lost,
            AgentHello: self._on_hello,
            AgentDied: self._on_died,
            AgentFailedEvent: self._on_failed,
            AgentFinished: self._on_finished,
            AgentBack: self.run.late.on_back,
            AgentProgress: self._on_progress,
            HoldEnded: self._on_hold_ended,
            AgentsFound: self.run.late.on_found,
            OrderDone: self._on_order_done,
            OrderFailed: self.failures.order_failed,
            ExecutorDamages: self.failures.damaged,
            Acknowledged: self._on_acknowledged,
            ReadLocal: self._on_read_local,
            SaveAgents: self._on_save_agents,
            Initial: self._on_initial,
            Prepared: self._on_prepared,
            JointPublished: self._on_joint_published,
            JointRestored: self._on_joint_restored,
            StopRequested: self._on_stop,
            Tick: self._on_tick,
        }
        self._advances: dict[RunState, Callable[[float], Step]] = {
            RunState.STARTING: self.starting.advance,
            RunState.READING: self.starting.advance_reading,
            RunState.RUNNING: self.exchange.advance,
            RunState.PAUSED: self.exchange.advance,
            RunState.STOPPING: self.stopping.advance,
        }

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Apply one event and say what to do next. A closed run accepts events, and does nothing.

        Args:
            event: what happened.
            now: when, in seconds of a monotonic clock.

        Returns:
            Instructions for the shell, in the order in which it must carry them out.

        Raises:
            LocalProtocolError: this is no event of `Event`, or an illegal move. The move changed nothing.
        """
        handler = self._handlers.get(type(event))
        if handler is None:
            raise LocalProtocolError(f"the driver's machine knows no such event: {event!r}")
        self.run.story.heard(event, now)
        if self.run.state is RunState.CLOSED:
            return []
        out = handler(event, now)
        while self.run.idle:
            step = self._advances[self.run.state](now)
            out += step.instructions
            if not step.again:
                break
        return out

    # ---- what it shows -------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> RunShape:
        return self.run.shape

    @property
    def state(self) -> RunState:
        return self.run.state

    @property
    def counts(self) -> str:
        """The word for what `cycle` counts: "cycle", or "exchange"."""
        return self.exchange.counts

    @property
    def cycle(self) -> int:
        return self.exchange.cycle

    @property
    def began(self) -> float | None:
        return self.run.began

    @property
    def stopped(self) -> float | None:
        return self.run.stopped

    @property
    def ended(self) -> End | None:
        return self.stopping.ended

    @property
    def executors(self) -> int:
        return len(self.run.table.executors)

    @property
    def agents_wanted(self) -> int:
        return len(self.run.table.agents)

    @property
    def agents_alive(self) -> int:
        return self.run.table.count(AgentState.ACTIVE, AgentState.BEGUN, AgentState.READY, AgentState.JOINING)

    @property
    def agents_lost(self) -> int:
        return self.run.table.lost

    @property
    def agents_replaced(self) -> int:
        return self.run.table.replaced

    @property
    def at_work(self) -> str:
        return self.run.finishing.at_work

    @property
    def local_reads(self) -> int:
        return self.run.local.ended

    @property
    def local_read_s(self) -> float:
        return self.run.local.took

    def position(self) -> dict[str, Any]:
        return self.run.reader_tracker.position()

    # ---- executors and agents ----------------------------------------------------------------------------------------

    def _on_executor_ready(self, event: ExecutorReady, now: float) -> list[Instruction]:
        if self.run.state is RunState.STOPPING:
            return []
        return self.run.table.executor_ready(event.executor, event.host, event.cores, now)

    def _on_executor_lost(self, event: ExecutorLost, now: float) -> list[Instruction]:
        run, orders = self.run, self.run.orders
        stopping = run.state is RunState.STOPPING
        for agent in run.table.agents:
            if agent.executor == event.executor and agent.state != AgentState.ABSENT:
                self.exchange.leave_out(agent.index, f"executor {event.executor} lost")
            if agent.executor == event.executor and stopping:
                run.finishing.ended(agent.id, f"executor {event.executor} lost: {event.reason}")
        self.exchange.forget_part(event.executor)
        out = run.table.executor_lost(event.executor, event.reason, now, refill=not stopping)
        if orders.job is not None and event.executor in orders.job.executors:
            out += orders.cancel(f"executor {event.executor} lost")
        orders.heard_of_a_loss(now)
        out += self.failures.retry(now)
        if run.trains:
            out += run.late.ask()
        return out

    def _on_hello(self, event: AgentHello, now: float) -> list[Instruction]:
        run, hello = self.run, event.hello
        if run.table.find(hello.id) is None:
            return []
        reason = run.joining.greet(hello)
        if reason:
            run.stop(StopRequested("failed", reason, final=True), now)
            return []
        run.lengths = [4 * (b - a) for a, b in zip(hello.bounds, hello.bounds[1:], strict=False)]
        return run.table.hello(hello.id, event.host, hello.pid, now)

    def _on_died(self, event: AgentDied, now: float) -> list[Instruction]:
        run, table = self.run, self.run.table
        found = table.find(event.id)
        if found is None:
            return []
        reason = event.reason
        if run.state is RunState.STOPPING:
            if found.state != AgentState.FINISHED:
                run.finishing.ended(event.id, f"died: {reason}")
                table.move(found, AgentState.ABSENT, now, reason)
            return []
        out = table.died(event.id, reason, now)
        executor = table.executors.get(event.executor)
        if executor is None or executor.quarantined_until <= now:
            return out
        if run.state is RunState.STARTING and table.seats < run.shape.min_agents:
            where = f"host {executor.host} (executor {event.executor})"
            why = f"agent {event.agent} on {where} cannot start: {reason}\n{event.tail.strip()}"
            run.stop(StopRequested("failed", why), now)
        return out

    def _on_failed(self, event: AgentFailedEvent, now: float) -> list[Instruction]:
        found = self.run.table.find(event.id)
        if found is None or found.state == AgentState.FINISHED:
            return []
        self.run.finishing.ended(event.id, f"raised {event.error}")
        # the process ends by itself: a stop need not wait for it
        self.run.table.move(found, AgentState.ABSENT, now, event.error)
        where = f"agent {event.agent} (host {event.host}, executor {event.executor})"
        why = f"{where} raised {event.error}\n{event.traceback}"
        self.run.stop(StopRequested("failed", why, final=True), now)
        return []

    def _on_finished(self, event: AgentFinished, now: float) -> list[Instruction]:
        run = self.run
        found = run.table.find(event.id)
        forgot = found is not None and found.state == AgentState.STARTING and run.state is not RunState.STOPPING
        out = run.table.finished(event.id, now)
        if forgot:
            why = (
                f"agent {event.agent} (executor {event.executor}): the train function returned without mpca.attach; "
                "call mpca.attach(model, optimizer) when both are made, before the loop"
            )
            run.stop(StopRequested("failed", why, final=True), now)
        return out

    def _on_progress(self, event: AgentProgress, now: float) -> list[Instruction]:
        run = self.run
        run.reader_tracker.progress(event)
        run.finishing.progress(event, now)
        if event.function == RETURNED:
            run.local.leaves(event.id)
        run.silence.heard(event.id, now)
        if event.steps > 0:
            run.table.trains(event.id, now)
        return []

    def _on_hold_ended(self, event: HoldEnded, now: float) -> list[Instruction]:
        return [] if self.run.state is RunState.STOPPING else self.run.late.on_hold_ended(event)

    # ---- what became of an order ---------------------------------------------------------------------------------------

    def _on_order_done(self, event: OrderDone, now: float) -> list[Instruction]:
        run = self.run
        order = run.orders.done(event.order)
        if order is None:
            return []
        run.local.let_go(order.stop)
        if order.save is not None:
            run.saves.done(order.save)
        if order.stop:
            return []
        run.reader_tracker.delivered(order)
        self.failures.order_done()
        if order.cycle < 0:
            self.starting.order_done(order, event, now)
            return []
        if run.local.owns(order):
            return self._on_local_done(order, event, now)
        return self.exchange.order_done(order, event, now)

    def _on_local_done(self, order: Order, event: OrderDone, now: float) -> list[Instruction]:
        run = self.run
        if order.freeze is None:
            run.local.done(order, None)
            return []
        out: list[Instruction] = []
        kept, late = ShardSnapshots.of(order.freeze, event.answers, set(run.table.executors))
        for one in kept.frozen.values():
            run.late.answered(one.id)
        for key, reason in late.items():
            out += run.late.was_late(key, reason, now)
        run.local.done(order, kept)
        return out

    def _on_acknowledged(self, event: Acknowledged, now: float) -> list[Instruction]:
        self.exchange.acknowledged(event, now)
        self.run.joining.acknowledged(event, now)
        return self.run.late.on_acknowledged(event.id, now)

    # ---- what the shell answers and asks -------------------------------------------------------------------------------

    def _on_initial(self, event: Initial, now: float) -> list[Instruction]:
        self.run.asked = None
        if self.run.state is RunState.READING:
            self.starting.adopted(event)
        else:
            self.run.local.adopted(len(self.run.lengths), now)
        return []

    def _on_prepared(self, event: Prepared, now: float) -> list[Instruction]:
        self.run.asked = None
        return self.exchange.prepared(event)

    def _on_joint_published(self, event: JointPublished, now: float) -> list[Instruction]:
        self.run.asked = None
        self.run.joining.published(event, self.cycle)
        return []

    def _on_joint_restored(self, event: JointRestored, now: float) -> list[Instruction]:
        self.exchange.restored(event.versions)
        return []

    def _on_read_local(self, event: ReadLocal, now: float) -> list[Instruction]:
        self.run.local.want()
        return []

    def _on_save_agents(self, event: SaveAgents, now: float) -> list[Instruction]:
        self.run.saves.want()
        return []

    def _on_stop(self, event: StopRequested, now: float) -> list[Instruction]:
        self.run.stop(event, now)
        return []

    def _on_tick(self, event: Tick, now: float) -> list[Instruction]:
        run = self.run
        out = self.failures.retry(now)
        if run.state is RunState.STOPPING:
            out += self.stopping.tick(now)
        out += run.orders.cancel_overdue(now)
        out += self.exchange.tick(now)
        if run.state is not RunState.STOPPING:
            out += run.silence.look(now)
        if run.trains:
            if now - run.made_at >= run.shape.start_timeout_s:
                out += self.exchange.count_from(now)
            out += run.table.fill(now)
            out += run.late.on_tick(now)
        return out
