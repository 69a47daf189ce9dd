"""The stop of a run: what was accepted is kept, then the train functions end, then the run ends.

First the driver takes a sum that was made into the joint model and writes the record of its cycle. Then it reads local tensors
a last time. Then one order tells all agents to stop, and before that to save what is their own, if backups have that. It goes
out again if it failed. `finishing.py` says how long the driver waits for their functions.
"""

from __future__ import annotations

from mpca.driver.dispatcher import Draft
from mpca.driver.instructions import End, Instruction
from mpca.driver.objectives import judge
from mpca.driver.run import Run, Step
from mpca.driver.running import Running
from mpca.driver.states import LIVING, AgentState, RunState
from mpca.timeouts import STOP_GRACE_S, STOP_ORDER_S
from mpca.wire.orders import StopAgent

__all__ = ["Stopping"]

#: Bytes a second. The last read of local tensors may take STOP_ORDER_S; unless the run was interrupted, it may also take the
#: time that their bytes need at this rate.
STOP_LOCAL_RATE = 25e6


class Stopping:
    """Decides in the state STOPPING.

    Args:
        run: what the parts of the machine share.
        exchange: has the sum and the record that are not finished yet.
    """

    def __init__(self, run: Run, exchange: Running) -> None:
        self.ended: End | None = None
        self._run, self._exchange = run, exchange
        self._deadline: float | None = None  # of the order in flight; None: that order was in flight at the stop already
        self._reads = False  # the last read of local tensors has begun
        self._saves = False  # agents were told to save what is their own

    def advance(self, now: float) -> Step:
        """The next thing that the end of the run needs; called when the run is idle.

        Args:
            now: seconds of the machine.

        Returns:
            Instructions, and whether to look again at once; the last one is End.
        """
        run, exchange, finishing = self._run, self._exchange, self._run.finishing
        assert run.ending is not None
        out = exchange.prepare_made()
        if out:
            return Step(out)
        out = exchange.write_last()
        if run.local.wanted and not finishing.told:
            read = self._read_local(now)
            if read is not None:
                return Step(out + read)
        living = [a for a in run.table.in_state(*LIVING) if a.executor in run.table.executors]
        reason = run.ending.reason.splitlines()[0]
        if not finishing.told or finishing.due_again(now):
            self._deadline = now + STOP_GRACE_S
            finishing.tell(living, run.ending, now)
            draft = Draft("stop", stop=[StopAgent(*agent.ref, reason) for agent in living])
            if not draft.stop:
                return Step(out)
            active = [agent for agent in living if agent.state == AgentState.ACTIVE]
            if active and not self._saves and run.saves.stops():
                self._saves = True
                draft.save, instruction = run.saves.order(active, exchange.cycle)
                out = [*out, instruction]
            return Step(out + run.orders.submit(draft, exchange.cycle, now))
        waiting = [agent for agent in living if finishing.waits_for(agent, now)]
        finishing.say(waiting, now)
        if waiting:
            return Step(out, again=False)
        run.enter(RunState.CLOSED, reason, now)
        ending = judge(run.ending, any(exchange.versions), exchange.counts, run.stopped_in)
        self.ended = finishing.end(ending, run.table.agents, now)
        return Step([*out, self.ended])

    def _read_local(self, now: float) -> list[Instruction] | None:
        run = self._run
        assert run.ending is not None
        if not self._reads:
            self._reads = True
            length = 0 if run.ending.status == "interrupted" else sum(run.lengths[run.shape.shards :])
            self._deadline = now + STOP_ORDER_S + length / STOP_LOCAL_RATE
        return run.read_local(self._exchange.cycle, now)

    def tick(self, now: float) -> list[Instruction]:
        """Give up an order that is not answered in time.

        Args:
            now: seconds of the machine.

        Returns:
            CancelOrder, or nothing.
        """
        run = self._run
        assert run.stopped is not None
        if now <= (run.stopped + STOP_ORDER_S if self._deadline is None else self._deadline):
            return []
        out = run.orders.cancel("the run is stopping")
        job = run.orders.abandon()
        if job is not None and run.local.owns(job):
            run.local.give_up("no answer in time", now)
        return out
