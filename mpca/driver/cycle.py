"""The driver's cycle as a state machine: which order goes out when, who is in it, what a failure changes.

It opens nothing, reads no clock and holds no parameters: `handle(event, now)` returns instructions for the shell.

Stages of a run::

    STARTING --all said hello--> READING --x_0 is known--> RUNNING <--> PAUSED
        |                           |                         |            |
        +-------- StopRequested ----+-------------------------+------------+--> STOPPING --> CLOSED

A cycle n, with S shards (shard n mod S) and P phases::

    P = 3   one job {reduce n, download of n-2, freeze n+1}; the sum of n-1 is prepared while it runs
    P = 2   one job {reduce n, download of n-1, freeze n+1}; then n is prepared
    P = 1   job {reduce n}; n is prepared; job {download of n}; job {freeze n+1}

With P > 1, freeze n+1 is a job of its own after the acknowledgements exactly when the method installs at the exchange or is
delay-corrected, and shard (n+1) mod S is the one being downloaded.

*Freeze n+1* materialises the yields of the next cycle at the end of this one, so that a reduce begins with every chunk
in place and with every contributor known to the driver: agent, incarnation, tau, checksum, finite. A cycle ends when
its jobs, its preparation and the acknowledgements of its download have ended, or the late ones were declared late: by the
deadline, or one alone sooner (`ledger.PublishedShard.overdue`).

Irregular flow. *A job fails*: the executors known to be lost are left out and the same cycle is submitted again; frozen
yields make that free. Nobody known to be lost after a moment's grace: the executor that failed is left out as late, and
asked again by rediscovery. *Bytes of an executor are damaged twice*: it is left out at once, of all ranges, and asked again
only after `BARRED_S`. *An agent is late*: it was not frozen at the deadline; it is in nothing until it answers.
*Fewer than `min_agents`*: no order that commits goes out, PAUSED says why, and the cycle begins again with a new freeze
(idempotent for those frozen already). *A yield is not finite*, or moved further than the norm limit allows (`norms.py`): it
never enters; its agent takes the joint model as its own. *An agent joins*: see `joining.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from mpca.driver.agent_table import Agent, AgentTable
from mpca.driver.cycle_record import CycleRecordBuilder
from mpca.driver.dispatcher import NO_CYCLE, Draft, OrderDispatcher
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
    OrderDone,
    OrderFailed,
    Prepared,
    ReadLocal,
    StopRequested,
    Tick,
)
from mpca.driver.finishing import GRACE_S, Finishing
from mpca.driver.instructions import AdoptInitial, End, Instruction, Prepare, PublishJoint, Write
from mpca.driver.joining import Joining
from mpca.driver.late_agents import LateAgents
from mpca.driver.local_reads import LocalReads
from mpca.driver.norms import NormLimit
from mpca.driver.objectives import judge
from mpca.driver.published import PublishedShard, Sum
from mpca.driver.readers import Readers
from mpca.driver.run_shape import RunShape
from mpca.driver.silence import Silence
from mpca.driver.snapshots import ShardSnapshots
from mpca.driver.states import LIVING, RUN_MOVES, AgentState, RunState
from mpca.errors import LocalProtocolError
from mpca.wire.messages import RETURNED
from mpca.wire.orders import Answer, Freeze, Order, Part, Reduce

__all__ = ["CycleMachine"]

log = logging.getLogger("mpca.cycle")

# How long a stop waits for the job in flight; for the train functions: `finishing.py`.
STOP_JOB_S = 2.0
# The last read of local tensors may take STOP_JOB_S, and unless the run was interrupted what so many bytes a second take.
STOP_LOCAL_RATE = 25e6


class CycleMachine:
    """See the module's text."""

    def __init__(self, shape: RunShape, table: AgentTable, now: float) -> None:
        self.shape = shape
        self.table = table
        self.story = table.story
        self.state = RunState.STARTING
        self.cycle = shape.first_cycle
        self.versions: list[int] = [0] * shape.shards  # exchanges of each shard so far
        self.lengths: list[int] = []  # bytes of each shard, those of local tensors behind the model's
        self.max_cycles: int | None = None  # an objective; here, since no further cycle may begin
        self.ended: End | None = None
        #: Machine time from which training is counted: all agents of the start had taken their first update, or
        #: `start_timeout` was over. None before.
        self.began: float | None = None
        self._started = now
        self.readers = Readers(len(table.agents), shape.data, shape.places)
        self._orders = OrderDispatcher(shape, table, self.readers)
        self._joining = Joining(table)
        self.local = LocalReads(table, shape.shards)
        self._phase = ""  # "" between cycles, "reduce", "broadcast"
        self._waiting = False  # for the shell's answer to AdoptInitial, Prepare or PublishJoint
        self._snapshots = ShardSnapshots(NO_CYCLE)
        self._sum: Sum | None = None
        self._ready: PublishedShard | None = None  # published, to be downloaded in the next cycle (in this one if P = 1)
        self._outgoing: PublishedShard | None = None  # being downloaded
        self._owed: PublishedShard | None = None  # of an earlier cycle; somebody who is late alone still downloads it
        self._ack_deadline = 0.0
        self._alphas = [0.0] * shape.shards  # that goes with the joint state of each shard's last exchange
        self._record = CycleRecordBuilder()
        self._late = LateAgents(table)
        self._silence = Silence(table)
        self._norms = NormLimit(shape.norm_limit, shape.shards)
        self._failures = 0  # of orders, in a row, that nobody's loss explains
        self._paused = (0.0, "")
        #: What train functions still do when the run stops.
        self.finishing = Finishing(shape.finish_s)
        self.stopped: float | None = None  # machine time of the first request to stop
        self._ending: StopRequested | None = None
        self._stop_deadline = 0.0
        self._stop_reads = False
        self._stopped_in = ""  # the order that was in flight when the run was stopped
        self._handlers: dict[type, Callable[[Any, float], list]] = {
            ExecutorReady: self._on_executor_ready,
            ExecutorLost: self._on_executor_lost,
            AgentHello: self._on_hello,
            AgentDied: self._on_died,
            AgentFailedEvent: self._on_failed,
            AgentFinished: self._on_finished,
            AgentBack: self._late.on_back,
            AgentProgress: self._on_progress,
            HoldEnded: self._on_hold_ended,
            AgentsFound: self._late.on_found,
            OrderDone: self._on_order_done,
            OrderFailed: self._on_order_failed,
            ExecutorDamages: self._on_damages,
            Acknowledged: self._on_acknowledged,
            ReadLocal: self._on_read_local,
            Initial: self._on_initial,
            Prepared: self._on_prepared,
            JointPublished: self._on_joint_published,
            StopRequested: self._on_stop,
            Tick: self._on_tick,
        }
        self._advances: dict[str, Callable[[float], list | None]] = {
            RunState.STARTING: self._advance_starting,
            RunState.READING: self._advance_reading,
            RunState.RUNNING: self._advance_running,
            RunState.PAUSED: self._advance_running,
            RunState.STOPPING: self._advance_stopping,
        }

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Apply one event at time `now` (seconds, monotonic) and say what to do next. A closed run hears on, and does nothing.

        Raises:
            LocalProtocolError: this is no event of `Event`; nothing was changed.
        """
        handler = self._handlers.get(type(event))
        if handler is None:
            raise LocalProtocolError(f"the driver's machine knows no such event: {event!r}")
        self.story.heard(event, now)
        if self.state == RunState.CLOSED:
            return []
        out = handler(event, now)
        while (
            self.state != RunState.CLOSED and self._orders.job is None and not self._waiting and self._orders.retry_at is None
        ):
            step = self._advances[self.state](now)
            if step is None:
                break
            out += step
        return out

    # ---- executors and agents ----------------------------------------------------------------------------------------

    def _on_executor_ready(self, event: ExecutorReady, now: float) -> list:
        if self.state == RunState.STOPPING:
            return []
        return self.table.executor_ready(event.executor, event.host, event.cores, now)

    def _on_executor_lost(self, event: ExecutorLost, now: float) -> list:
        for agent in self.table.agents:
            if agent.executor == event.executor and agent.state != AgentState.ABSENT:
                self._leave_out(agent.index, f"executor {event.executor} lost")
        self._snapshots.weights.pop(event.executor, None)
        stopping = self.state == RunState.STOPPING
        for agent in self.table.agents if stopping else ():
            if agent.executor == event.executor:
                self.finishing.ended(agent.index, agent.incarnation, f"executor {event.executor} lost: {event.reason}")
        out: list = self.table.executor_lost(event.executor, event.reason, now, refill=not stopping)
        if self._orders.job is not None and event.executor in self._orders.job.executors:
            out += self._orders.cancel(f"executor {event.executor} lost")
        if self._orders.retry_at is not None:
            self._orders.retry_at = now  # the news it was waiting for
            out += self._retry(now)
        if self.state in (RunState.RUNNING, RunState.PAUSED):
            out += self._late.ask()
        return out

    def _on_hello(self, event: AgentHello, now: float) -> list:
        hello = event.hello
        if self.table.find(hello.agent, hello.incarnation) is None:
            return []
        reason = self._joining.greet(hello)
        if reason:
            return self._on_stop(StopRequested("failed", reason, final=True), now)
        self.lengths = [4 * (b - a) for a, b in zip(hello.bounds, hello.bounds[1:], strict=False)]
        return self.table.hello(hello.agent, hello.incarnation, event.host, hello.pid, now)

    def _on_died(self, event: AgentDied, now: float) -> list:
        found = self.table.find(event.agent, event.incarnation)
        if found is None:
            return []
        tail = event.tail.strip()
        reason = event.reason
        if self.state == RunState.STOPPING:
            if found.state != AgentState.FINISHED:
                self.finishing.ended(event.agent, event.incarnation, f"died: {reason}")
                self.table.move(found, AgentState.ABSENT, now, reason)
            return []
        out = self.table.died(event.agent, event.incarnation, reason, now)
        executor = self.table.executors.get(event.executor)
        if self.state == RunState.STARTING and executor is not None and executor.quarantined_until > now:
            why = f"agent {event.agent} on executor {event.executor} cannot start: {reason}\n{tail}"
            out += self._on_stop(StopRequested("failed", why), now)
        return out

    def _on_failed(self, event: AgentFailedEvent, now: float) -> list:
        found = self.table.find(event.agent, event.incarnation)
        if found is None:
            return []
        self.finishing.ended(event.agent, event.incarnation, f"raised {event.error}")
        self.table.move(found, AgentState.ABSENT, now, event.error)  # it ends by itself: a stop need not wait for it
        where = f"agent {event.agent} (host {event.host}, executor {event.executor})"
        return self._on_stop(StopRequested("failed", f"{where} raised {event.error}\n{event.traceback}", final=True), now)

    def _on_finished(self, event: AgentFinished, now: float) -> list:
        found = self.table.find(event.agent, event.incarnation)
        forgot = found is not None and found.state == AgentState.STARTING and self.state != RunState.STOPPING
        out: list = self.table.finished(event.agent, event.incarnation, now)
        if forgot:
            why = (
                f"agent {event.agent} (executor {event.executor}): the train function returned without mpca.attach; "
                "call mpca.attach(model, optimizer) when both are made, before the loop"
            )
            out += self._on_stop(StopRequested("failed", why, final=True), now)
        return out

    def _on_progress(self, event: AgentProgress, now: float) -> list:
        self.readers.progress(event)
        self.finishing.progress(event, now)
        if event.function == RETURNED:
            self.local.leaves(event.agent, event.incarnation)
        self._silence.heard(event.agent, event.incarnation, now)
        if event.steps > 0:
            self.table.trains(event.agent, event.incarnation, now)
        return []

    def _on_hold_ended(self, event: HoldEnded, now: float) -> list:
        return [] if self.state == RunState.STOPPING else self._late.on_hold_ended(event)

    # ---- the start -----------------------------------------------------------------------------------------------------

    def _advance_starting(self, now: float) -> list | None:
        """What to do next; None: nothing until the next event."""
        hellos, wanted = self.table.count(AgentState.JOINING), len(self.table.agents)
        timed_out = now - self._started >= self.shape.start_timeout_s
        if hellos == wanted or (timed_out and hellos >= self.shape.min_agents):
            if self.shape.resumed:
                self._enter(RunState.RUNNING, "the joint model comes from a backup", now)
            else:
                self._enter(RunState.READING, f"{hellos}/{wanted} agents said hello", now)
                self._joining.choose_source()
            return []
        if not timed_out:
            return None
        late = self.table.count(AgentState.STARTING)
        hint = f"{late} were started and have not: is it called, before the loop? What they printed is above" if late else ""
        why = (
            f"{hellos}/{wanted} agents called mpca.attach within cluster.start_timeout={self.shape.start_timeout_s:.0f}s, "
            f"{len(self.table.executors)} executors are there and min_agents={self.shape.min_agents}; "
            f"{hint or 'look at the logs of executors'}, or raise cluster.start_timeout"
        )
        return self._on_stop(StopRequested("failed", why), now)

    def _advance_reading(self, now: float) -> list | None:
        """x_0 of one agent, one shard an order, with weight 1 since its tau is still 0. Its cycles end with -1.

        Shards behind the model's are its local tensors; they are read along.
        """
        source, shard = self._joining.source, self._joining.read
        if source is None or source.state != AgentState.JOINING:
            if not self._joining.choose_source():
                self._enter(RunState.STARTING, "the agent whose x_0 was being read is gone", now)
            return []
        if self._sum is not None:
            done, self._sum = self._sum, None
            self._waiting = True
            return [AdoptInitial(done.order, done.shard, done.length)]
        if shard == len(self.lengths):
            self._joining.agree(now)
            self._record = CycleRecordBuilder()  # the first cycle's line says nothing of the reading
            self._enter(RunState.RUNNING, "x_0 is known", now)
            return []
        cycle = shard - len(self.lengths)
        draft = Draft(f"read x_0 of agent {source.index}, shard {shard}", forget_cycle=cycle - 1)
        if self._snapshots.cycle == cycle and source.index in self._snapshots.frozen:
            draft.reduce = Reduce(cycle, shard, self.lengths[shard], [Part(source.executor or "", 1.0)])
        else:
            draft.freeze = (cycle, shard, [source])
        return self._orders.submit(draft, cycle, now)

    def _on_initial(self, event: Initial, now: float) -> list:
        self._waiting = False
        if self.state == RunState.READING:
            self._joining.read = event.shard + 1
        else:
            self.local.adopted(len(self.lengths), now)
        return []

    # ---- local tensors -------------------------------------------------------------------------------------------------

    def _on_read_local(self, event: ReadLocal, now: float) -> list:
        self.local.want()
        return []

    def _read_local(self, now: float) -> list | None:
        """The next order of a read, or the taking of what it brought; None: nothing is to be read."""
        step = self.local.step(self.lengths, now)
        if step is None:
            return None
        if isinstance(step, AdoptInitial):
            self._waiting = True
            return [step]
        out = self._orders.submit(step, self.cycle, now)
        if self._orders.job is not None:
            self.local.sent(self._orders.job.order)
        return out

    def _on_local_done(self, order: Order, answers: list[Answer], now: float) -> list:
        if order.freeze is None:
            self.local.done(order, None)
            return []
        out: list = []
        kept, late = ShardSnapshots.of(order.freeze, answers, set(self.table.executors))
        for one in kept.frozen.values():
            self._late.answered((one.agent, one.incarnation))
        for key, reason in late.items():
            out += self._late.was_late(key, reason, now)
        self.local.done(order, kept)
        return out

    # ---- one cycle -----------------------------------------------------------------------------------------------------

    def _advance_running(self, now: float) -> list | None:
        joiners_wait = self._joining.waits()
        if self._unacknowledged() or (joiners_wait and now <= self._ack_deadline):
            return None
        if self._phase == "reduce" and self.shape.phases == 1:
            self._phase = "broadcast"
            self._outgoing, self._ready = self._ready, None
            self._ack_deadline = now + self.shape.deadline_s
            return self._submit_cycle(now)
        if self._phase:
            return self._end_cycle(now)
        out = self._orders.drop(self._joining.take_done(given_up=joiners_wait))
        if self.table.count(AgentState.JOINING) and not self._joining.joint:
            self._waiting = True
            return [*out, PublishJoint()]
        released = self.local.release()
        step = self._orders.submit(released, self.cycle, now) if released is not None else self._read_local(now)
        if step is not None:
            return out + step
        if self.max_cycles is not None and self.cycle >= self.max_cycles:
            return out + self._on_stop(StopRequested("max_cycles", f"{self.cycle} cycles"), now)
        if self.table.count(AgentState.FINISHED) == len(self.table.agents):
            return out + self._on_stop(StopRequested("reached", "every train function returned"), now)
        there = self.table.count(AgentState.ACTIVE, AgentState.BEGUN, AgentState.READY)
        if there < self._needed:
            out += self._pause(there, now)
            if self._joining.targets():
                self._ack_deadline = now + self.shape.deadline_s
                return out + self._orders.submit(self._with_joiners(Draft("joint model for joining agents")), self.cycle, now)
            return out or None
        if self.state == RunState.PAUSED:
            self._enter(RunState.RUNNING, f"{there} agents alive", now)
            out.append(Write("pause", {"start": self._paused[0], "end": now, "reason": self._paused[1]}))
        step = self._begin_cycle(now)
        return out + step if step else out or None

    @property
    def _needed(self) -> int:
        """Agents that a commit needs: `min_agents`, less those whose train function has returned."""
        return max(1, min(self.shape.min_agents, len(self.table.agents) - self.table.count(AgentState.FINISHED)))

    def _pause(self, there: int, now: float) -> list:
        if self.state == RunState.PAUSED:
            return []
        reason = f"{there} of {len(self.table.agents)} agents alive, min_agents={self.shape.min_agents}"
        self._enter(RunState.PAUSED, reason, now)
        self._paused = (now, reason)
        return [Write("pause", {"start": now, "end": None, "reason": reason})]

    def _begin_cycle(self, now: float) -> list | None:
        usable = self._snapshots.contributors() if self._snapshots.cycle == self.cycle else []
        self._ack_deadline = now + self.shape.deadline_s
        if len(usable) >= self._needed and self._snapshots.mixed():
            well = [a for a in self.table.in_state(AgentState.ACTIVE) if a.index in usable]
            draft = Draft(f"cycle {self.cycle}: freeze again, without what is beyond the norm limit")
            draft.freeze = (self.cycle, self.cycle % self.shape.shards, well)
            return self._orders.submit(self._with_joiners(draft), self.cycle, now)
        if len(usable) < self._needed:
            # the first cycle, or after a pause: take (again) what the agents have, once enough of them train
            everyone = [*self.table.in_state(AgentState.ACTIVE)]
            first = self.cycle == self.shape.first_cycle and now - self._started < self.shape.start_timeout_s
            if len(everyone) < self._needed or (first and self.table.count(AgentState.BEGUN, AgentState.READY)):
                if self.table.count(AgentState.READY) or self._joining.targets():
                    return self._orders.submit(self._with_joiners(Draft("begin")), self.cycle, now)
                return None
            out = self._count_from(now)
            if self._snapshots.cycle == self.cycle and self._snapshots.any_unusable(everyone):
                self.cycle += 1  # asked again they would hand over the same: the number of this cycle is given up
                self._record.left_out = {}
            draft = Draft(f"cycle {self.cycle}: freeze", freeze=(self.cycle, self.cycle % self.shape.shards, everyone))
            return out + self._orders.submit(self._with_joiners(draft), self.cycle, now)
        self._phase = "reduce"
        if self.shape.phases > 1:
            self._outgoing, self._ready = self._ready, None
        return self._submit_cycle(now)

    def _submit_cycle(self, now: float) -> list:
        """The order of the present phase, built from what is true now: also after a failure."""
        n, shards = self.cycle, self.shape.shards
        draft = Draft(f"cycle {n}: {self._phase} shard {n % shards}", download=self._outgoing)
        if self._phase == "reduce":
            contributors = self._contributors()
            if len(contributors) < self._needed:
                # not enough for a commit: back to the beginning of this cycle, which pauses and freezes again
                self._phase = ""
                back, self._outgoing = self._outgoing, None
                if self._ready is None:
                    self._ready = back
                    return []
                return self._orders.drop([back]) if back is not None else []  # a newer one is ready already
            frozen = self._snapshots.frozen
            self._record.contributors = {
                a: {"incarnation": frozen[a].incarnation, "tau": frozen[a].tau, "crc": frozen[a].crc} for a in contributors
            }
            draft.reduce = self._reduce(contributors)
        if self.shape.phases > 1 and not self._freeze_waits():
            draft.freeze = (n + 1, (n + 1) % shards, [*self.table.in_state(AgentState.ACTIVE)])
        self._record.submissions += 1
        out = self._orders.submit(self._with_joiners(draft), n, now)
        if self.shape.phases == 3 and self._sum is not None:
            out += self._prepare()
        return out

    def _freeze_waits(self) -> bool:
        """Whether n+1 is frozen after the acknowledgements, by an order of its own, so that no yield overtakes the joint state
        of its shard: figure 12, and the delay-corrected install. With S = P = 3 every download is of the shard that is next.

        With one phase it always is: nothing overlaps there, and agents that hold would answer without the joint state.
        """
        one = self._outgoing
        return self.shape.waits_for_shard and one is not None and one.shard == (self.cycle + 1) % self.shape.shards

    def _contributors(self) -> list[int]:
        executor = self._snapshots.executor
        return sorted(a for a in self._snapshots.contributors() if executor[a] in self.table.executors)

    def _reduce(self, contributors: list[int]) -> Reduce | None:
        """Parts in the order of their lowest agent, whatever arrived first. None: every tau is 0, nothing moves."""
        names = dict.fromkeys(self._snapshots.executor[a] for a in contributors)
        parts = [Part(name, self._snapshots.weights[name]) for name in names if self._snapshots.weights[name] > 0]
        shard = self.cycle % self.shape.shards
        return Reduce(self.cycle, shard, self.lengths[shard], parts) if parts else None

    def _with_joiners(self, draft: Draft) -> Draft:
        draft.joint, draft.joiners = self._joining.joint, self._joining.targets()
        draft.begin = True
        draft.forget_cycle = self.cycle - 1
        return draft

    def _prepare(self) -> list:
        done, self._sum = self._sum, None
        assert done is not None
        self._waiting = True
        return [Prepare(done.order, done.cycle, done.shard, done.length)]

    def _end_cycle(self, now: float) -> list:
        out = self._write_cycle()
        if self._outgoing is not None:
            done, self._outgoing = self._outgoing, None
            if self._owes(done, now):  # one at most: who is late with an older one is given up
                done, self._owed = self._owed, done
            out += self._orders.drop([done] if done is not None else [])
        self._phase = ""
        self.cycle += 1
        return out

    def _write_cycle(self) -> list:
        ledger, self._record = self._record, CycleRecordBuilder()
        shard = self.cycle % self.shape.shards
        numbers = (self._alphas[shard], *self.shape.numbers(self.versions[shard] + (self._sum is not None)))
        for agent in self.table.agents:  # nobody is missing without a word
            if agent.index not in ledger.contributors:
                ledger.left_out.setdefault(agent.index, self.table.why_unasked(agent))
        # who was left out when the next cycle was frozen is known already
        if self._snapshots.cycle == self.cycle + 1:
            self._record.left_out = dict(self._snapshots.left_out)
        ledger.bytes.update(self.readers.take_bytes())
        return [Write("cycle", ledger.line(self.cycle, shard, numbers))]

    def _leave_out(self, agent: int, reason: str) -> None:
        self._snapshots.left_out[agent] = reason
        if self._snapshots.cycle == self.cycle:
            self._record.left_out[agent] = reason

    def _count_from(self, now: float) -> list:
        """Training begins, once: what is compared between runs is counted from here, not from whoever was first."""
        if self.began is not None:
            return []
        self.began = now
        return [Write("begin", {"agents": self.table.count(AgentState.ACTIVE)})]

    # ---- what became of an order ---------------------------------------------------------------------------------------

    def _on_order_done(self, event: OrderDone, now: float) -> list:
        order = self._orders.done(event.order)
        if order is None:
            return []
        self.local.let_go(order.stop)
        if order.stop:
            return []
        self.readers.delivered(order)
        self._failures = 0
        if self.state != RunState.READING and self.local.owns(order):
            return self._on_local_done(order, event.answers, now)
        out: list = []
        if order.reduce is not None:
            reduce = order.reduce
            if tau := self._record.mean_tau():
                self._alphas[reduce.shard] = self.shape.alpha_for(tau)
            self._sum = Sum(order.order, reduce.cycle, reduce.shard, reduce.length)
            starts = [a.reduce_start for a in event.answers if a.reduce_start] or [event.start]
            ends = [a.reduce_end for a in event.answers if a.reduce_end] or [event.end]
            self._record.stretch("reduce", reduce.shard, min(starts), max(ends))
        for answer in event.answers:
            self._record.bytes["in"] += answer.bytes_in
            self._record.bytes["out"] += answer.bytes_out
        self._record.bytes["driver_in"] += event.driver_in
        if order.freeze is not None:
            out += self._take_frozen(order.freeze, event.answers, now)
        if self._sum is not None and self.state == RunState.RUNNING and self.shape.phases < 3:
            out += self._prepare()
        return out

    def _take_frozen(self, freeze: Freeze, answers: list[Answer], now: float) -> list:
        """What the executors hold of the next cycle, and who is late, or not well, by it."""
        out: list = []
        kept, late = ShardSnapshots.of(freeze, answers, set(self.table.executors))
        kept.left_out.update(self._orders.unasked)
        if freeze.cycle >= 0:  # the reading of x_0 has nothing to compare with
            kept.refuse(self._norms.judge(freeze.cycle, kept.frozen))
        for one in kept.frozen.values():
            self._late.answered((one.agent, one.incarnation))
            self._silence.heard(one.agent, one.incarnation, now)
            self._record.pauses[one.agent] = [one.start, one.end]
            found = self.table.find(one.agent, one.incarnation)
            if not kept.usable(one.agent) and found is not None and found.state == AgentState.ACTIVE:
                what = "beyond the norm limit" if one.finite else "not finite"
                out += self.table.unusable(found, freeze.cycle // self.shape.shards, now, what)
        non_finite = kept.frozen and not any(one.finite for one in kept.frozen.values())
        if non_finite and all(agent.index in kept.frozen for agent in self.table.in_state(*LIVING)):
            why = (
                f"the parameters of all {len(kept.frozen)} agents are not finite in cycle {freeze.cycle}: training diverged; "
                "lower optimizer.lr or the method's gamma. What is saved is the last joint model, which is finite"
            )
            return self._on_stop(StopRequested("failed", why, final=True), now)
        for key, reason in late.items():
            out += self._late.was_late(key, reason, now)
        self._snapshots = kept
        if freeze.cycle == self.cycle:
            self._record.left_out.update(kept.left_out)
        return out

    def _on_order_failed(self, event: OrderFailed, now: float) -> list:
        order = self._orders.done(event.order)
        if order is None or self.state == RunState.STOPPING:
            if order is not None and self.local.owns(order):
                self.local.give_up(event.reason, now)
            if order is not None and order.stop:
                self.finishing.unheard(now)
            return []
        log.warning("order=%d failed executor=%s reason=%s", event.order, event.executor, event.reason)
        self._orders.keep_failed(event, order, now)
        return self._retry(now)

    def _retry(self, now: float) -> list:
        """The failed order once more, without what is known to be lost."""
        failed = self._orders.take_failed(now)
        if failed is None:
            return []
        event, order = failed
        out = [] if self._orders.lost_one(order) and not event.damages else self._suspect(event, now)
        if self.state in (RunState.RUNNING, RunState.PAUSED) and self._phase:
            out += self._submit_cycle(now)
        return out  # otherwise the order is built anew from what is true now

    def _suspect(self, event: OrderFailed, now: float) -> list:
        """Nobody is known to be lost: leave the executors out that failed or did not end, and ask them later."""
        out: list = []
        culprits = [event.executor] if event.executor else event.unfinished  # a failed task ends all others
        self._failures += 1
        if not culprits or self._failures > len(self.table.agents) + 3:
            why = f"cycle {self.cycle} failed {self._failures} times: {event.reason}"
            return self._on_stop(StopRequested("failed", why), now)
        if event.executor and event.damages:
            self._late.bar(event.executor, now)
        for name in culprits:
            out += self._leave_out_executor(name, event.reason, now)
        return out

    def _on_damages(self, event: ExecutorDamages, now: float) -> list:
        if self.state not in (RunState.RUNNING, RunState.PAUSED) or event.executor not in self.table.executors:
            return []
        log.warning("%s", event.reason)
        self._late.bar(event.executor, now)
        return self._leave_out_executor(event.executor, event.reason, now)

    def _leave_out_executor(self, name: str, reason: str, now: float) -> list:
        """All ranges of a sum have the same contributors: its part is in none of them, from the next order on."""
        out: list = []
        self._snapshots.weights.pop(name, None)
        # LATE too: whose download was awaited during the grace is late already, and its part is still in this cycle
        for agent in list(self.table.in_state(AgentState.ACTIVE, AgentState.LATE)):
            if agent.executor == name:
                self._leave_out(agent.index, reason)
                out += self._late.left_out(agent, reason, now)
        return out

    # ---- preparation and broadcasts --------------------------------------------------------------------------------------

    def _on_prepared(self, event: Prepared, now: float) -> list:
        self._waiting = False
        self.versions[event.shard] = event.version
        self._norms.joint_moved(event.shard, event.moved, event.size)
        self._record.stretch("prepare", event.shard, event.start, event.end)
        if event.broadcast is None:
            return []
        unsent = [] if self._ready is None else [self._ready]  # its cycle did not come about: the newer one goes out
        length, alpha = self.lengths[event.shard], self._alphas[event.shard]
        self._ready = PublishedShard(event.cycle, event.shard, event.broadcast, event.version, length, alpha)
        return self._orders.drop(unsent)

    def _on_joint_published(self, event: JointPublished, now: float) -> list:
        self._waiting = False
        self._joining.published(event, self.cycle)
        return []

    def _on_acknowledged(self, event: Acknowledged, now: float) -> list:
        self._record.bytes["in"] += event.bytes_in
        self._record.bytes["driver_out"] += event.from_driver
        if self._owed is not None and event.broadcast == self._owed.broadcast:
            self._owed.acknowledged((event.agent, event.incarnation), now)
        if self._outgoing is not None and event.broadcast == self._outgoing.broadcast:
            self._outgoing.acknowledged((event.agent, event.incarnation), now)
            self._record.stretch("broadcast", self._outgoing.shard, event.start, event.end)
        self._joining.acknowledged(event, now)
        return self._late.on_acknowledged((event.agent, event.incarnation), now)

    def _unacknowledged(self) -> list[Agent]:
        """Agents that were told to download this cycle's broadcast and have not acknowledged it."""
        one = self._outgoing
        if one is None or not self._phase or len(one.asked) == len(one.acked):
            return []
        missing = one.asked - one.acked
        return [a for a in self.table.in_state(AgentState.ACTIVE) if (a.index, a.incarnation) in missing]

    def _owes(self, one: PublishedShard, now: float) -> bool:
        """Whether somebody who is late alone may still acknowledge this broadcast."""
        in_time = now <= one.since + self.shape.deadline_s
        return in_time and any(self._late.owes(key) for key in one.asked - one.acked)

    # ---- time and the end ------------------------------------------------------------------------------------------------

    def _on_tick(self, event: Tick, now: float) -> list:
        out = self._retry(now)
        if self.state == RunState.STOPPING and now > self._stop_deadline:
            out += self._orders.cancel("the run is stopping")
            if self._orders.job is not None and self.local.owns(self._orders.job):
                self.local.give_up("no answer in time", now)
            self._orders.job = None  # whatever becomes of it is of no interest any more
        if self._orders.overdue(now):
            out += self._orders.cancel(f"no answer within cluster.cycle_deadline={self.shape.deadline_s:.0f}s")
        if self._orders.job is None and self._phase:
            reason = "its download was not acknowledged in time"
            for agent in self._unacknowledged():
                if now > self._ack_deadline:
                    out += self._late.left_out(agent, reason, now)
                elif self._outgoing is not None and self._outgoing.overdue(now):
                    out += self._late.late_alone(agent, reason, self._outgoing.since + self.shape.deadline_s, now)
        if self._owed is not None and not self._owes(self._owed, now):
            out += self._orders.drop([self._owed])
            self._owed = None
        if self.state != RunState.STOPPING:
            out += self._silence.look(now)
        if self.state in (RunState.RUNNING, RunState.PAUSED):
            if now - self._started >= self.shape.start_timeout_s:
                out += self._count_from(now)
            out += self.table.fill(now)
            out += self._late.on_tick(now)
        return out

    def _on_stop(self, event: StopRequested, now: float) -> list:
        if self._ending is not None:
            self._ending = self.finishing.again(self._ending, event, now)
            return []
        self._ending, self.stopped = event, now
        self._stopped_in = self._orders.job.description if self._orders.job is not None else ""
        self._stop_deadline = now + STOP_JOB_S
        if self.state in (RunState.RUNNING, RunState.PAUSED) and self.table.count(*LIVING):
            self.local.want()
        self._enter(RunState.STOPPING, event.reason.splitlines()[0], now)
        self._orders.clear()
        self._waiting = False
        return []

    def _advance_stopping(self, now: float) -> list | None:
        """Nothing accepted is lost: a sum that was made is prepared first; then the agents are told to stop."""
        assert self._ending is not None
        if self._sum is not None and self._sum.cycle >= 0:  # cycles below 0 are the reading of x_0
            return self._prepare()
        out: list = []
        if self._record.contributors and "reduce" in self._record.stages:
            out += self._write_cycle()
            self.cycle += 1
        if self.local.wanted and not self.finishing.told:
            if not self._stop_reads:
                self._stop_reads = True
                length = 0 if self._ending.status == "interrupted" else sum(self.lengths[self.shape.shards :])
                self._stop_deadline = now + STOP_JOB_S + length / STOP_LOCAL_RATE
            step = self._read_local(now)
            if step is not None:
                return out + step
        living = [a for a in self.table.in_state(*LIVING) if a.executor in self.table.executors]
        reason = self._ending.reason.splitlines()[0]
        if not self.finishing.told or self.finishing.due_again(now):
            self._stop_deadline = now + GRACE_S
            self.finishing.tell(living, self._ending, now)
            stop = [[*agent.key, reason] for agent in living]
            return out + (self._orders.submit(Draft("stop", stop=stop), self.cycle, now) if stop else [])
        waiting = [agent for agent in living if self.finishing.waits_for(agent, now)]
        self.finishing.say(waiting, now)
        if waiting:
            return out or None
        self._enter(RunState.CLOSED, reason, now)
        ending = judge(self._ending, any(self.versions), self._stopped_in)
        self.ended = self.finishing.end(ending, self.table.agents, now)
        return [*out, self.ended]

    def _enter(self, state: RunState, reason: str, now: float) -> None:
        self.story.moved("driver", self.state, state, reason, RUN_MOVES, now)
        log.info("driver state %s -> %s reason=%r", self.state, state, reason)
        self.state = state
