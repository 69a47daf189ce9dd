"""What all parts of the driver's machine share: the agents, the orders, the state of the run, and what the shell must answer.

Decisions are made elsewhere: in `starting.py`, `stopping.py` and the forms of `running.py`. `run_machine.py` hands each event
to the part that it concerns.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, NamedTuple

from mpca.driver.agent_table import AgentTable
from mpca.driver.dispatcher import OrderDispatcher
from mpca.driver.events import StopRequested
from mpca.driver.finishing import Finishing
from mpca.driver.instructions import AdoptInitial, CutJoint, Instruction, Prepare, PublishJoint
from mpca.driver.joining import Joining
from mpca.driver.late_agents import LateAgents
from mpca.driver.local_reads import LocalReads
from mpca.driver.reader_tracker import ReaderTracker
from mpca.driver.run_shape import RunShape
from mpca.driver.saves import Saves
from mpca.driver.silence import Silence
from mpca.driver.states import LIVING, RUN_MOVES, RunState

__all__ = ["WAIT", "Run", "Step"]

log = logging.getLogger("mpca.cycle")


class Step(NamedTuple):
    """What a part of the machine decided when it was asked what comes next."""

    instructions: list[Instruction]
    again: bool = True  # ask once more at once; False: only the next event can bring what is missing


WAIT = Step([], again=False)


class Run:
    """See the module's text.

    Args:
        shape: what does not change during the run.
        table: its agents.
        now: seconds of the machine's clock, at which the run is made.
    """

    def __init__(self, shape: RunShape, table: AgentTable, now: float) -> None:
        self.shape, self.table, self.story = shape, table, table.story
        self.made_at = now
        self.state = RunState.STARTING
        self.lengths: list[int] = []  # bytes of each shard, those of local tensors behind the model's
        self.began: float | None = None  # as `Machine.began`
        self.decided: dict[str, Any] = {}  # the number of shards and what it was decided by, for the record of kind `begin`
        self.reader_tracker = ReaderTracker(len(table.agents), shape.data, shape.shard_hosts)
        self.orders = OrderDispatcher(shape, table, self.reader_tracker)
        self.joining = Joining(table, shape.deadline_s)
        self.local = LocalReads(table, shape.shards)
        self.saves = Saves(shape.term, shape.saves_to)
        self.late = LateAgents(table)
        self.silence = Silence(table)
        self.finishing = Finishing(shape.finish_s)
        self.asked: AdoptInitial | Prepare | PublishJoint | None = None  # what the shell has not answered yet
        self.ending: StopRequested | None = None
        self.stopped: float | None = None  # as `Machine.stopped`
        self.stopped_in = ""  # the order that was in flight then

    @property
    def idle(self) -> bool:
        """Whether something new may begin: no order is out or waits to go out again, and the shell owes no answer."""
        return self.state is not RunState.CLOSED and self.orders.idle and self.asked is None

    @property
    def trains(self) -> bool:
        """Whether the run is RUNNING or PAUSED."""
        return self.state in (RunState.RUNNING, RunState.PAUSED)

    def enter(self, state: RunState, reason: str, now: float) -> None:
        """Move the run to another state.

        Args:
            state: where to.
            reason: why, for the log and the story.
            now: seconds of the machine.

        Raises:
            LocalProtocolError: the move is illegal; nothing was changed.
        """
        self.story.moved("driver", self.state, state, reason, RUN_MOVES, now)
        log.info("driver state %s -> %s reason=%r", self.state, state, reason)
        self.state = state

    def ask(self, question: AdoptInitial | Prepare | PublishJoint) -> list[Instruction]:
        """Have the shell do something. The machine waits for the answer.

        Returns:
            The instruction.
        """
        self.asked = question
        return [question]

    def cut(self, shards: int) -> list[Instruction]:
        """Go on with another number of shards. Nothing of the old ones may be in flight.

        Returns:
            CutJoint, before which no agent may be started anew.
        """
        self.shape = self.orders.shape = replace(self.shape, shards=shards)
        self.local = LocalReads(self.table, shards)
        self.joining.cut()
        return [CutJoint(shards)]

    def stop(self, request: StopRequested, now: float) -> None:
        """Begin to end the run. When it was asked before, `Finishing.again` says which request counts.

        Args:
            request: what to end as, and why.
            now: seconds of the machine.
        """
        if self.ending is not None:
            self.ending = self.finishing.again(self.ending, request, now)
            return
        self.ending, self.stopped = request, now
        self.stopped_in = self.orders.job.description if self.orders.job is not None else ""
        if self.trains and self.table.count(*LIVING):
            self.local.want()
        self.enter(RunState.STOPPING, request.reason.splitlines()[0], now)
        self.orders.clear()
        self.asked = None

    def read_local(self, cycle: int, now: float) -> list[Instruction] | None:
        """Go on with a read of local tensors.

        Args:
            cycle: the cycle that goes on, or is next.
            now: seconds of the machine.

        Returns:
            The read's next order, or the question that takes its sum; None: nothing is to be read.
        """
        step = self.local.step(self.lengths, now)
        if step is None:
            return None
        if isinstance(step, AdoptInitial):
            return self.ask(step)
        out = self.orders.submit(step, cycle, now)
        if self.orders.job is not None:
            self.local.sent(self.orders.job.order)
        return out
