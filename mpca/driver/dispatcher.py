"""Writes the driver's orders, knows the one in flight, and holds a failed one until it may go out again.

One job at a time: an executor has one core for orders, and two jobs in flight hung the prototype. Other files decide which
order comes next (`run_machine.py` names them); this file knows how to write it and what became of it. `now` is seconds of the
machine's clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpca.driver.agent_table import Agent, AgentTable
from mpca.driver.events import OrderFailed
from mpca.driver.instructions import CancelOrder, Instruction, SubmitOrder, Withdraw
from mpca.driver.published import PublishedShard
from mpca.driver.reader_tracker import ReaderTracker
from mpca.driver.run_shape import RunShape
from mpca.driver.states import LIVING, AgentState
from mpca.timeouts import CANCEL_AFTER_S, LOSS_NEWS_S
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import NEVER, Cut, Download, Freeze, Order, Reduce, Save, StopAgent

__all__ = ["Draft", "Failed", "InFlight", "OrderDispatcher"]


@dataclass(slots=True)
class Draft:
    """What an order is to do. The dispatcher adds who does it, and what else is due."""

    description: str
    reduce: Reduce | None = None
    freeze: tuple[int, int, list[Agent]] | None = None  # cycle, shard, agents
    download: PublishedShard | None = None
    joint: list[PublishedShard] | None = None  # the joint model, for `joiners`
    joiners: list[AgentRef] | None = None
    begin: bool = False  # READY agents begin with this order
    cut: list[AgentRef] | None = None  # agents that cut the model into the run's number of shards
    stop: list[StopAgent] | None = None
    save: Save | None = None
    forget_cycle: int = NEVER
    patience_s: float = 0.0  # what it may take at least, if `RunShape.deadline_s` is shorter


@dataclass(slots=True)
class InFlight:
    """An order is out; its deadline is in seconds of the machine, and came `patience_s` after it was sent."""

    order: Order
    patience_s: float
    cancelled: bool = False


@dataclass(slots=True)
class Failed:
    """An order failed. It waits until its cause is known."""

    order: Order
    event: OrderFailed
    again_at: float  # seconds of the machine


class OrderDispatcher:
    """Orders of one run.

    Args:
        shape: what does not change during the run.
        table: its agents.
        reader_tracker: who reads the data; orders bring the agents what changed.
    """

    def __init__(self, shape: RunShape, table: AgentTable, reader_tracker: ReaderTracker) -> None:
        self._state: InFlight | Failed | None = None
        self.shape, self._table, self._reader_tracker = shape, table, reader_tracker
        self._serial = 0
        self._asked: dict[int, set[str]] = {}  # broadcast -> executors that were asked to fetch it
        # Withdrawn broadcasts, each with the executors that must hear of it. A late executor hears no order: it would go on
        # fetching a broadcast that is gone, and fetch nothing after it.
        self._waste: dict[int, set[str]] = {}
        self.unasked: dict[int, str] = {}  # agents that are not in the newest freeze, and why

    @property
    def job(self) -> Order | None:
        """The order in flight; None: none is."""
        return self._state.order if isinstance(self._state, InFlight) else None

    @property
    def idle(self) -> bool:
        """No order is in flight, and none waits to go out again."""
        return self._state is None

    def submit(self, draft: Draft, cycle: int, now: float) -> list[Instruction]:
        """Write one order for every executor that has an agent, with begins, joiners and clean-up in it.

        Args:
            draft: what the order is to do.
            cycle: the cycle that it belongs to, or the next one.
            now: seconds of the machine; the order's deadline is `RunShape.deadline_s` later, or `Draft.patience_s`.

        Returns:
            SubmitOrder; nothing when no executor is there.
        """
        living = [a for a in self._table.in_state(*LIVING) if a.executor in self._table.executors]
        begin = [a.ref for a in living if a.state == AgentState.READY] if draft.begin else []
        for agent in living:
            if begin and agent.state == AgentState.READY:
                self._table.move(agent, AgentState.ACTIVE if agent.stepped else AgentState.BEGUN, now, "begin")
        self._reader_tracker.look(self._table.agents, [one.agent for one in begin])
        names = dict.fromkeys(a.executor or "" for a in living if a.state != AgentState.LATE or draft.stop)
        names.update(dict.fromkeys(part.executor for part in draft.reduce.parts) if draft.reduce else {})
        names.update(dict.fromkeys(who.executor for who in draft.cut or ()))
        if not names:
            return []
        self._serial += 1
        freeze, patience_s = draft.freeze, max(self.shape.deadline_s, draft.patience_s)
        if freeze is not None:
            asked = {agent.index for agent in freeze[2]}
            self.unasked = {a.index: self._table.why_unasked(a) for a in self._table.agents if a.index not in asked}
        order = Order(
            order=self._serial,
            run=self.shape.run,
            term=self.shape.term,
            cycle=cycle,
            deadline=now + patience_s,
            executors=list(names),
            description=draft.description,
            begin=begin,
            stop=draft.stop or [],
            forget_cycle=draft.forget_cycle,
            forget_broadcasts=list(self._waste),
            downloads=self._downloads(draft, living, now),
            reduce=draft.reduce,
            freeze=None if freeze is None else Freeze(freeze[0], freeze[1], [a.ref for a in freeze[2]], self.shape.weights),
            readers=self._reader_tracker.tell(a for a in living if a.executor in names),
            cut=Cut(self.shape.shards, draft.cut) if draft.cut else None,
            save=draft.save,
        )
        self._heard(order)
        self._state = InFlight(order, patience_s)
        return [SubmitOrder(order)]

    def _heard(self, order: Order) -> None:
        """The order tells its executors of the waste. If the order fails, `keep_failed` puts the waste back."""
        heard = set(order.executors)
        left = {
            one: {name for name in names if name in self._table.executors and name not in heard}
            for one, names in self._waste.items()
        }
        self._waste = {one: names for one, names in left.items() if names}

    def _downloads(self, draft: Draft, living: list[Agent], now: float) -> list[Download]:
        downloads = []
        one = draft.download
        if one is not None:
            targets = [a.ref for a in living if a.state == AgentState.ACTIVE and a.id not in one.acked]
            if targets:
                one.ask((who.id for who in targets), now)
                downloads.append(Download(one.broadcast, one.shard, one.version, "install", one.length, targets, one.alpha))
        for joint in draft.joint or ():
            targets = [who for who in draft.joiners or () if who.id not in joint.acked]
            if targets:
                joint.asked.update(who.id for who in targets)
                downloads.append(Download(joint.broadcast, joint.shard, joint.version, "replace", joint.length, targets))
        for asked in downloads:
            self._asked.setdefault(asked.broadcast, set()).update(who.executor for who in asked.agents)
        return downloads

    def drop(self, broadcasts: list[PublishedShard]) -> list[Instruction]:
        """Withdraw broadcasts on the driver; executors forget them with the next order that they hear.

        Returns:
            One Withdraw for each.
        """
        for one in broadcasts:
            self._waste[one.broadcast] = self._asked.pop(one.broadcast, set())
        return [Withdraw(one.broadcast) for one in broadcasts]

    def done(self, order: int) -> Order | None:
        """Take the order in flight if it has this number.

        Returns:
            The order, which is no longer in flight; None: another one is, or none.
        """
        job = self.job
        return self.abandon() if job is not None and job.order == order else None

    def abandon(self) -> Order | None:
        """Take the order in flight, if there is one: its outcome does not matter any more."""
        job = self.job
        if job is not None:
            self._state = None
        return job

    def cancel(self, reason: str) -> list[Instruction]:
        """End the order in flight; OrderFailed follows. The second call for an order does nothing.

        Args:
            reason: why, for the event and the log.

        Returns:
            CancelOrder, or nothing.
        """
        if not isinstance(self._state, InFlight) or self._state.cancelled:
            return []
        self._state.cancelled = True
        return [CancelOrder(self._state.order.order, reason)]

    def cancel_overdue(self, now: float) -> list[Instruction]:
        """End the order in flight if it is `CANCEL_AFTER_S` past its deadline at `now` (seconds of the machine)."""
        state = self._state
        if not isinstance(state, InFlight) or now <= state.order.deadline + CANCEL_AFTER_S:
            return []
        return self.cancel(f"no answer within {state.patience_s:.0f}s (cluster.cycle_deadline={self.shape.deadline_s:.0f}s)")

    # ---- after a failure -------------------------------------------------------------------------------------------

    def keep_failed(self, event: OrderFailed, order: Order, now: float) -> None:
        """Keep a failed order until its cause is known. A known loss explains it at once; else news of one may be on its way.

        Args:
            event: how the order failed.
            order: the order, which `done` gave.
            now: seconds of the machine; the grace is `LOSS_NEWS_S`.
        """
        for who in order.begin:  # it is not known whether the agent heard; it may hear twice
            found = self._table.find(who.id)
            if found is not None and found.state == AgentState.BEGUN:
                self._table.move(found, AgentState.READY, now, "the order that said begin failed")
        for broadcast in order.forget_broadcasts:  # nor whether the executors heard of the waste
            self._waste.setdefault(broadcast, set()).update(order.executors)
        self._state = Failed(order, event, now if event.damages or self.lost_one(order) else now + LOSS_NEWS_S)

    def lost_one(self, order: Order) -> bool:
        """Whether an executor of this order is gone."""
        return any(name not in self._table.executors for name in order.executors)

    def heard_of_a_loss(self, now: float) -> None:
        """An executor was lost at `now` (seconds of the machine): this is the news that a failed order waits for."""
        if isinstance(self._state, Failed):
            self._state.again_at = now

    def take_failed(self, now: float) -> Failed | None:
        """Take the failed order once its grace is over.

        Returns:
            The failed order; None: there is none, or it still waits at `now` (seconds of the machine).
        """
        failed = self._state
        if not isinstance(failed, Failed) or now < failed.again_at:
            return None
        self._state = None
        return failed

    def clear(self) -> None:
        """A failed order does not go out again."""
        if isinstance(self._state, Failed):
            self._state = None
