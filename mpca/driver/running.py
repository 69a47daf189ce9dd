"""What RUNNING and PAUSED are whatever agents exchange: joiners, local tensors, pauses and the end come before what is next.

`Exchange` (cycles) and `Serving` (agents that ask by themselves) are the two forms. `now` is seconds of the machine's clock.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import ClassVar

from mpca.driver.dispatcher import Draft
from mpca.driver.events import Acknowledged, OrderDone, Prepared, StopRequested
from mpca.driver.instructions import Instruction, PublishJoint, Write
from mpca.driver.run import Run, Step
from mpca.driver.states import AgentState, RunState
from mpca.wire.orders import Order

__all__ = ["Running"]

log = logging.getLogger("mpca.cycle")


class Running(ABC):
    """Decides in the states RUNNING and PAUSED; what has no cycles leaves the methods about cycles as they are here.

    `counts` is the word for what `cycle` counts, where people read it.

    Args:
        run: what the parts of the machine share.
    """

    counts: ClassVar[str] = "cycle"

    def __init__(self, run: Run) -> None:
        self.cycle = run.shape.first_cycle  # the one that goes on, or is next
        self.versions = [0] * run.shape.shards  # exchanges of each shard so far
        self._run = run
        self._paused = (0.0, "")  # since when, and why

    @abstractmethod
    def advance(self, now: float) -> Step:
        """Decide what comes next; called when the run is idle.

        Args:
            now: seconds of the machine.

        Returns:
            Instructions, and whether to look again at once. `WAIT`: only an event can bring what is missing.
        """

    @abstractmethod
    def _next(self, now: float) -> Step:
        """What comes next when nothing comes before it."""

    # ---- what comes before -----------------------------------------------------------------------------------------------

    def _between(self, given_up: bool, now: float) -> Step:
        """Joining agents, local tensors and the end of the run come first. `given_up`: a joint model's time is over."""
        run, joining = self._run, self._run.joining
        if given_up:
            log.warning(
                "agents=%s have not received a shard of the joint model within %gs, and it is sent anew; if this happens "
                "again, raise cluster.cycle_deadline, which is %gs",
                [who.agent for who in joining.targets()],
                joining.patience_s,
                run.shape.deadline_s,
            )
        out = run.orders.drop(joining.take_done(given_up))
        if run.table.count(AgentState.JOINING) and not joining.joint:
            return Step(out + run.ask(PublishJoint()))
        released = run.local.release()
        if released is not None:
            return Step(out + run.orders.submit(released, self.cycle, now))
        read = run.read_local(self.cycle, now)
        if read is not None:
            return Step(out + read)
        end = self._end()
        if end is not None:
            run.stop(end, now)
            return Step(out)
        there = self._there
        if there < self._needed:
            out += self._pause(there, now)
            if joining.targets():
                joining.await_shard(now)
                return Step(out + self._submit(Draft("joint model for joining agents"), now))
            return Step(out, again=False)
        if run.state is RunState.PAUSED:
            run.enter(RunState.RUNNING, f"{there} agents alive", now)
            out.append(Write("pause", {"start": self._paused[0], "end": now, "reason": self._paused[1]}))
        step = self._next(now)
        return Step(out + step.instructions, step.again)

    def _end(self) -> StopRequested | None:
        """Why nothing further may begin; None: it may."""
        table, most = self._run.table, self._run.shape.goals.max_cycles
        if most is not None and self.cycle >= most:
            return StopRequested("max_cycles", f"{self.cycle} {self.counts}s")
        if table.count(AgentState.FINISHED) == len(table.agents):
            return StopRequested("reached", "every train function returned")
        return None

    @property
    def _there(self) -> int:
        """Agents that train, or are about to."""
        return self._run.table.count(AgentState.ACTIVE, AgentState.BEGUN, AgentState.READY)

    @property
    def _needed(self) -> int:
        """Agents that an exchange needs: `min_agents`, less those whose train function has returned; at least 1."""
        table = self._run.table
        return max(1, min(self._run.shape.min_agents, len(table.agents) - table.count(AgentState.FINISHED)))

    def _deadline(self, now: float) -> float:
        return now + self._run.shape.deadline_s

    def _pause(self, there: int, now: float) -> list[Instruction]:
        if self._run.state is RunState.PAUSED:
            return []
        reason = f"{there} of {len(self._run.table.agents)} agents alive, min_agents={self._run.shape.min_agents}"
        self._run.enter(RunState.PAUSED, reason, now)
        self._paused = (now, reason)
        return [Write("pause", {"start": now, "end": None, "reason": reason})]

    def count_from(self, now: float) -> list[Instruction]:
        """Training begins, once. What is compared between runs is counted from here, and not from the fastest agent.

        Args:
            now: seconds of the machine.

        Returns:
            A record of kind `begin`; nothing at a later call.
        """
        if self._run.began is not None:
            return []
        self._run.began = now
        return [Write("begin", {"agents": self._run.table.count(AgentState.ACTIVE), **self._run.decided})]

    def restored(self, versions: tuple[int, ...]) -> None:
        """The joint model has so many shards, of which there were so many exchanges."""
        self.versions = list(versions)

    def _submit(self, draft: Draft, now: float) -> list[Instruction]:
        """An order, with the agents that join or begin."""
        return self._run.orders.submit(self._with_joiners(draft), self.cycle, now)

    def _with_joiners(self, draft: Draft) -> Draft:
        draft.joint, draft.joiners = self._run.joining.joint, self._run.joining.targets()
        draft.begin = True
        draft.forget_cycle = self.cycle - 1
        return draft

    # ---- of cycles -------------------------------------------------------------------------------------------------------

    def submit_again(self, now: float) -> list[Instruction]:
        """After a failure, submit the order of the present state again, built from what is true now.

        Args:
            now: seconds of the machine.

        Returns:
            Instructions; nothing when no order belongs to the state: the next one is built anew.
        """
        return []

    def order_done(self, order: Order, event: OrderDone, now: float) -> list[Instruction]:
        """An order of RUNNING has ended well.

        Args:
            order: the order.
            event: its answers, and when it ran.
            now: seconds of the machine.

        Returns:
            What follows from its answers.
        """
        return []

    def acknowledged(self, event: Acknowledged, now: float) -> None:
        """An executor has a broadcast for an agent, at `now` (seconds of the machine)."""
        return

    def tick(self, now: float) -> list[Instruction]:
        """Time has passed.

        Args:
            now: seconds of the machine.

        Returns:
            What is overdue.
        """
        return []

    def leave_out(self, agent: int, reason: str) -> None:
        """Note for the cycle's record that an agent is in no further order of it, and why."""
        return

    def forget_part(self, executor: str) -> None:
        """From the next order on, no sum has what this executor holds."""
        return

    def prepare_made(self) -> list[Instruction]:
        """Take a sum that is made into the joint model.

        Returns:
            Prepare; nothing when no sum waits for it.
        """
        return []

    def prepared(self, event: Prepared) -> list[Instruction]:
        """A sum is in the joint model, and published.

        Args:
            event: which sum, and how its outgoing form was published.

        Returns:
            Instructions that follow.
        """
        return []

    def write_last(self) -> list[Instruction]:
        """The run stops: write what is not written yet.

        Returns:
            A record, or nothing.
        """
        return []
