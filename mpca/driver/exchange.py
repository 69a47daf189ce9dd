"""One cycle after the other: who is in the sum, when it is prepared, who downloads it, and what the record says of it.

A cycle n, with S shards (shard n mod S) and P phases::

    P = 3   one job {reduce n, download of n-2, freeze n+1}; the sum of n-1 is prepared while it runs
    P = 2   one job {reduce n, download of n-1, freeze n+1}; then n is prepared
    P = 1   job {reduce n}; n is prepared; job {download of n}; job {freeze n+1}

*Freeze n+1* takes the snapshots of the next cycle at the end of this one: executors ask their agents while the sum is still
being made, as late as it costs the cycle nothing. So a reduce begins with every chunk in place, and the driver knows every
contributor: agent, incarnation, tau, checksum, finite. With P > 1, freeze n+1 is a job of its own after the acknowledgements
in one case only: the method installs at the exchange or is delay-corrected, and shard (n+1) mod S is being downloaded. A cycle
ends when its jobs and its preparation have ended, and each agent has acknowledged the download or was declared late: all at
the deadline, one alone sooner (`PublishedShard.overdue`).

`cycle_state.py` has the states of a cycle. `now` is seconds of the machine's clock.
"""

from __future__ import annotations

import logging

from mpca.driver.cycle_record import CycleRecordBuilder
from mpca.driver.cycle_state import BetweenCycles, Broadcasting, CycleState, Delivering, Reduced, Reducing
from mpca.driver.dispatcher import Draft
from mpca.driver.downloads import Downloads
from mpca.driver.events import Acknowledged, OrderDone, Prepared
from mpca.driver.instructions import Instruction, Prepare, Write
from mpca.driver.norms import NormLimit
from mpca.driver.published import PublishedShard, Sum
from mpca.driver.run import WAIT, Run, Step
from mpca.driver.running import Running
from mpca.driver.snapshots import ShardSnapshots
from mpca.driver.states import LIVING, AgentState, RunState
from mpca.wire.orders import NEVER, Answer, Freeze, Order, Part, Reduce

__all__ = ["Exchange"]

log = logging.getLogger("mpca.cycle")


class Exchange(Running):
    """Decides in the states RUNNING and PAUSED.

    Args:
        run: what the parts of the machine share.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.state: CycleState = BetweenCycles()
        self._downloads = Downloads(run)
        self._snapshots = ShardSnapshots(NEVER)  # of the newest freeze
        self._record = CycleRecordBuilder()
        self._reduce_s = 0.0  # that the last sum took
        self.restored((0,) * run.shape.shards)

    def restored(self, versions: tuple[int, ...]) -> None:
        super().restored(versions)
        self._norms = NormLimit(self._run.shape.norm_limit, len(versions))
        self._alphas = [0.0] * len(versions)  # alpha that goes with the joint state of each shard's last exchange

    # ---- what comes next ---------------------------------------------------------------------------------------------

    def advance(self, now: float) -> Step:
        joining, state = self._run.joining, self.state
        joiners_wait = joining.waits()
        if self._downloads.waits(self._download()) or (joiners_wait and now <= joining.deadline):
            return WAIT
        if isinstance(state, BetweenCycles):
            return self._between(given_up=joiners_wait, now=now)
        if isinstance(state, Delivering) and state.between:
            self.state = BetweenCycles(state.made)
            return Step(self._downloads.end(state.download, now))
        if isinstance(state, Reduced) and self._run.shape.phases == 1:
            joining.await_shard(now)
            self.state = Broadcasting(state.published, self._deadline(now))
            return Step(self._send_broadcast(self.state, now))
        return Step(self._end_cycle(now))

    # ---- one cycle -----------------------------------------------------------------------------------------------------

    def _next(self, now: float) -> Step:
        run, n, state = self._run, self.cycle, self.state
        assert isinstance(state, BetweenCycles), state
        usable = self._snapshots.contributors() if self._snapshots.cycle == n else []
        run.joining.await_shard(now)
        if run.saves.wanted and len(usable) < self._needed:
            return Step(self._come_to_rest(state, now))
        if len(usable) < self._needed:
            return self._freeze(now)
        if run.shape.holds and not any(self._snapshots.frozen[agent].tau for agent in usable):
            return self._begin_anew(usable, now)
        if self._snapshots.mixed():
            well = [a for a in run.table.in_state(AgentState.ACTIVE) if a.index in usable]
            draft = Draft(f"cycle {n}: freeze again, without what is beyond the norm limit")
            draft.freeze = (n, n % run.shape.shards, well)
            return Step(self._submit(draft, now))
        if len(self._contributors()) < self._needed:
            return WAIT
        download, kept = (state.published, None) if run.shape.phases > 1 else (None, state.published)
        self.state = Reducing(download, kept, self._deadline(now))
        out = self._send_reduce(self.state, now)
        if state.made is not None:
            out += self._prepare(state.made)
        return Step(out)

    def _come_to_rest(self, state: BetweenCycles, now: float) -> list[Instruction]:
        """No snapshot waits for its sum: deliver what is published, prepare what is made, then have agents' states saved."""
        if state.published is not None:
            self.state = Broadcasting(state.published, self._deadline(now), between=True, made=state.made)
            return self._send_broadcast(self.state, now)
        if state.made is not None:
            return self.prepare_made()
        saved = self._run.table.in_state(AgentState.ACTIVE)
        save, instruction = self._run.saves.order([*saved], self.cycle)
        return [instruction, *self._submit(Draft("save what is each agent's own", save=save), now)]

    def _begin_anew(self, usable: list[int], now: float) -> Step:
        """All who handed over are waiting for a joint state, and have nothing that no sum had: they take the joint model.

        What they were to take, or to hand over, came too late. No sum follows from nothing, so they would wait for ever.
        """
        why = "was late and waits for a joint state that will not come: it takes the joint model"
        for agent in list(self._run.table.in_state(AgentState.ACTIVE)):
            if agent.index in usable:
                self._run.table.move(agent, AgentState.JOINING, now, why)
        log.warning("cycle=%d agents=%s: each %s; if this happens again, raise cluster.cycle_deadline", self.cycle, usable, why)
        self.cycle += 1  # as in `_freeze`: asked again, their executors would give the same
        self._record.left_out = {}
        return Step([])

    def _freeze(self, now: float) -> Step:
        """In the first cycle, or after a pause: take the agents' snapshots (again), once enough agents train."""
        run, table = self._run, self._run.table
        everyone = [*table.in_state(AgentState.ACTIVE)]
        first = self.cycle == run.shape.first_cycle and now - run.made_at < run.shape.start_timeout_s
        if len(everyone) < self._needed or (first and table.count(AgentState.BEGUN, AgentState.READY)):
            if table.count(AgentState.READY) or run.joining.targets():
                return Step(self._submit(Draft("begin"), now))
            return WAIT
        out = self.count_from(now)
        if self._snapshots.cycle == self.cycle and self._snapshots.any_unusable(everyone):
            self.cycle += 1  # asked again, the agents would hand over the same: no cycle will have this number
            self._record.left_out = {}
        draft = Draft(f"cycle {self.cycle}: freeze", freeze=(self.cycle, self.cycle % run.shape.shards, everyone))
        return Step(out + self._submit(draft, now))

    def submit_again(self, now: float) -> list[Instruction]:
        """After a failure, submit the order of the present state again, built from what is true now.

        Args:
            now: seconds of the machine.

        Returns:
            SubmitOrder; or, when too few agents are left for a commit, Withdraw for a download that a newer one replaces.
        """
        state = self.state
        if isinstance(state, Broadcasting):
            return self._send_broadcast(state, now)
        if not isinstance(state, Reducing):
            return []
        if len(self._contributors()) >= self._needed:
            return self._send_reduce(state, now)
        # too few for a commit: back to the beginning of this cycle, where the run pauses and freezes again
        self.state = BetweenCycles(published=state.published or state.download)
        superseded = state.download if state.published is not None else None
        return self._run.orders.drop([superseded] if superseded is not None else [])

    def _send_reduce(self, state: Reducing, now: float) -> list[Instruction]:
        n, shards = self.cycle, self._run.shape.shards
        contributors, frozen = self._contributors(), self._snapshots.frozen
        self._record.contributors = {
            a: {"incarnation": frozen[a].incarnation, "tau": frozen[a].tau, "crc": frozen[a].crc} for a in contributors
        }
        draft = Draft(f"cycle {n}: reduce shard {n % shards}", reduce=self._reduce(contributors), download=state.download)
        draft.patience_s = 2 * self._reduce_s  # as in `downloads`
        if self._run.shape.phases > 1 and not self._freeze_waits(state.download) and not self._run.saves.wanted:
            draft.freeze = (n + 1, (n + 1) % shards, [*self._run.table.in_state(AgentState.ACTIVE)])
        return self._send(draft, now)

    def _send_broadcast(self, state: Broadcasting, now: float) -> list[Instruction]:
        shard = state.download.shard if state.download is not None else self.cycle % self._run.shape.shards
        return self._send(Draft(f"cycle {self.cycle}: broadcast shard {shard}", download=state.download), now, state.between)

    def _send(self, draft: Draft, now: float, between: bool = False) -> list[Instruction]:
        """`between`: it belongs to no cycle, and no record counts it."""
        self._record.submissions += not between
        out = self._submit(draft, now)
        if not out:  # no executor is there
            self._order_ended(None)
        return out

    def _freeze_waits(self, download: PublishedShard | None) -> bool:
        """Whether the snapshots of n+1 are frozen after the acknowledgements, by an order of their own.

        Then no snapshot overtakes the joint state of its shard, as figure 12 and the delay-corrected install need it. With S =
        P = 3 every download is of the shard that is next. With one phase the freeze always waits: nothing overlaps there, and
        agents that hold would answer without the joint state.
        """
        shape = self._run.shape
        return shape.waits_for_shard and download is not None and download.shard == (self.cycle + 1) % shape.shards

    def _contributors(self) -> list[int]:
        executor, there = self._snapshots.executor, self._run.table.executors
        return sorted(a for a in self._snapshots.contributors() if executor[a] in there)

    def _reduce(self, contributors: list[int]) -> Reduce | None:
        """Parts in the order of their lowest agent, whatever arrived first. None: every tau is 0, so nothing moves."""
        weights = self._snapshots.weights
        names = dict.fromkeys(self._snapshots.executor[a] for a in contributors)
        parts = [Part(name, weights[name]) for name in names if weights[name] > 0]
        shard = self.cycle % self._run.shape.shards
        return Reduce(self.cycle, shard, self._run.lengths[shard], parts) if parts else None

    def _end_cycle(self, now: float) -> list[Instruction]:
        state = self.state
        out = self._write_cycle() + self._downloads.end(self._download(), now)
        self.state = BetweenCycles(state.made, state.published) if isinstance(state, Reduced) else BetweenCycles()
        self.cycle += 1
        return out

    # ---- what became of an order ---------------------------------------------------------------------------------------

    def order_done(self, order: Order, event: OrderDone, now: float) -> list[Instruction]:
        """An order of a cycle, or between two cycles, has ended well.

        Args:
            order: the order.
            event: its answers, and when it ran.
            now: seconds of the machine.

        Returns:
            Records of agents that are late or not well; Prepare with fewer than three phases.
        """
        record, made = self._record, None
        if order.reduce is not None:
            reduce = order.reduce
            if tau := record.mean_tau():
                self._alphas[reduce.shard] = self._run.shape.alpha_for(tau, record.agents_that_trained())
            made = Sum(order.order, reduce.cycle, reduce.shard, reduce.length)
            starts = [a.reduce_start for a in event.answers if a.reduce_start] or [event.start]
            ends = [a.reduce_end for a in event.answers if a.reduce_end] or [event.end]
            record.stretch("reduce", reduce.shard, min(starts), max(ends))
            self._reduce_s = max(ends) - min(starts)
        for answer in event.answers:
            record.bytes["in"] += answer.bytes_in
            record.bytes["out"] += answer.bytes_out
        record.bytes["driver_in"] += event.driver_in
        self._order_ended(made)
        out = self._take_snapshots(order.freeze, event.answers, now) if order.freeze is not None else []
        if self._run.state is RunState.RUNNING and self._run.shape.phases < 3:
            out += self.prepare_made()
        return out

    def _order_ended(self, made: Sum | None) -> None:
        state = self.state
        if isinstance(state, Reducing):
            self.state = Reduced(made, state.download, state.published, state.deadline)
        elif isinstance(state, Broadcasting):
            self.state = Delivering(state.download, state.deadline, state.between, state.made)

    def _take_snapshots(self, freeze: Freeze, answers: list[Answer], now: float) -> list[Instruction]:
        """Take down what the executors hold of the next cycle, which agents are late by it, and which are not well."""
        run, out = self._run, []
        kept, late = ShardSnapshots.of(freeze, answers, set(run.table.executors))
        kept.left_out.update(run.orders.unasked)
        kept.refuse(self._norms.judge(freeze.cycle, kept.frozen))
        for one in kept.frozen.values():
            run.late.answered(one.id)
            run.silence.heard(one.id, now)
            self._record.pauses[one.agent] = [one.start, one.end]
            found = run.table.find(one.id)
            if not kept.usable(one.agent) and found is not None and found.state == AgentState.ACTIVE:
                what = "beyond the norm limit" if one.finite else "not finite"
                out += run.table.unusable(found, freeze.cycle // run.shape.shards, now, what)
        if kept.none_is_finite(run.table.in_state(*LIVING)):
            run.stop(kept.diverged(), now)
            return out
        for key, reason in late.items():
            out += run.late.was_late(key, reason, now)
        self._snapshots = kept
        if freeze.cycle == self.cycle:
            self._record.left_out.update(kept.left_out)
        return out

    def leave_out(self, agent: int, reason: str) -> None:
        """Note for the cycle's record that an agent is in no further order of it, and why."""
        self._snapshots.left_out[agent] = reason
        if self._snapshots.cycle == self.cycle:
            self._record.left_out[agent] = reason

    def forget_part(self, executor: str) -> None:
        """From the next order on, no sum has what this executor holds."""
        self._snapshots.weights.pop(executor, None)

    # ---- preparation and downloads ---------------------------------------------------------------------------------------

    def prepare_made(self) -> list[Instruction]:
        """Take a sum that is made into the joint model.

        Returns:
            Prepare; nothing when no sum waits for it.
        """
        state = self.state
        if not isinstance(state, (BetweenCycles, Reduced)) or state.made is None:
            return []
        made, state.made = state.made, None
        return self._prepare(made)

    def _prepare(self, made: Sum) -> list[Instruction]:
        return self._run.ask(Prepare(made.order, made.cycle, made.shard, made.length))

    def prepared(self, event: Prepared) -> list[Instruction]:
        """A sum is in the joint model, and published: it goes out with the next download.

        Args:
            event: which sum, and how its outgoing form was published.

        Returns:
            Withdraw for a shard that was published before and never went out.
        """
        shard, state = event.shard, self.state
        self.versions[shard] = event.version
        self._norms.joint_moved(shard, event.moved, event.size)
        self._record.stretch("prepare", shard, event.start, event.end)
        if event.broadcast is None:
            return []
        assert isinstance(state, (BetweenCycles, Reducing, Reduced)), state
        unsent = state.published  # the cycle that was to send it did not come about: the newer one goes out
        length = self._run.lengths[shard]
        state.published = PublishedShard(event.cycle, shard, event.broadcast, event.version, length, self._alphas[shard])
        return self._run.orders.drop([unsent] if unsent is not None else [])

    def acknowledged(self, event: Acknowledged, now: float) -> None:
        """An executor has a broadcast for an agent, at `now` (seconds of the machine)."""
        self._record.bytes["in"] += event.bytes_in
        self._record.bytes["driver_out"] += event.from_driver
        download = self._download()
        between = isinstance(self.state, (Broadcasting, Delivering)) and self.state.between
        if self._downloads.acknowledged(download, event, now) and download is not None and not between:
            self._record.stretch("broadcast", download.shard, event.start, event.end)

    def tick(self, now: float) -> list[Instruction]:
        """Time has passed: agents that do not acknowledge a download may be late by now.

        Args:
            now: seconds of the machine.

        Returns:
            Records of agents that are late, and Withdraw for a download that nobody waits for.
        """
        state, out = self.state, []
        if self._run.orders.job is None and not isinstance(state, BetweenCycles) and state.download is not None:
            out = self._downloads.look(state.download, state.deadline, now)
        return out + self._downloads.end_owed(now)

    def _download(self) -> PublishedShard | None:
        """What this cycle's orders say to download."""
        return None if isinstance(self.state, BetweenCycles) else self.state.download

    # ---- the record ----------------------------------------------------------------------------------------------------

    def write_last(self) -> list[Instruction]:
        """The run stops: write the record of a cycle whose sum was made, if it is not written yet.

        Returns:
            The record, or nothing.
        """
        if not self._record.contributors or "reduce" not in self._record.stages:
            return []
        out = self._write_cycle()
        self.cycle += 1
        return out

    def _write_cycle(self) -> list[Instruction]:
        run, state = self._run, self.state
        record, self._record = self._record, CycleRecordBuilder()
        shard = self.cycle % run.shape.shards
        unprepared = isinstance(state, Reduced) and state.made is not None
        numbers = (self._alphas[shard], *run.shape.numbers(self.versions[shard] + unprepared))
        for agent in run.table.agents:  # a record says of every agent why it is not in the sum
            if agent.index not in record.contributors:
                record.left_out.setdefault(agent.index, run.table.why_unasked(agent))
        # the next cycle is frozen already: its record begins with those who were left out then
        if self._snapshots.cycle == self.cycle + 1:
            self._record.left_out = dict(self._snapshots.left_out)
        record.bytes.update(run.reader_tracker.take_bytes())
        return [Write("cycle", record.line(self.cycle, shard, numbers))]
