"""The stop of a run: what was accepted is kept, then the train functions end, then the run has.

A sum that was made is prepared first and its cycle's record written, then local tensors are read a last time. Then all agents
are told in one order, which goes out again if it failed, and `finishing.py` says for how long their functions are waited for.
"""

from __future__ import annotations

from mpca.driver.dispatcher import Draft
from mpca.driver.exchange import Exchange
from mpca.driver.finishing import GRACE_S
from mpca.driver.instructions import End, Instruction
from mpca.driver.objectives import judge
from mpca.driver.run import Run, Step
from mpca.driver.states import LIVING, RunState

__all__ = ["STOP_JOB_S", "Stopping"]

#: How long a stop waits for the job in flight; for the train functions: `finishing.py`.
STOP_JOB_S = 2.0
#: The last read of local tensors may take STOP_JOB_S, and unless the run was interrupted what so many bytes a second take.
STOP_LOCAL_RATE = 25e6


class Stopping:
    """Decides in the state STOPPING."""

    def __init__(self, run: Run, exchange: Exchange) -> None:
        self.ended: End | None = None
        self._run, self._exchange = run, exchange
        self._deadline: float | None = None  # of the order in flight; None: of the one that was there at the stop
        self._reads = False  # local tensors, a last time

    def advance(self, now: float) -> Step:
        """The next thing that the end of the run needs; called when the run is idle."""
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
            self._deadline = now + GRACE_S
            finishing.tell(living, run.ending, now)
            stop = [[*agent.key, reason] for agent in living]
            return Step(out + (run.orders.submit(Draft("stop", stop=stop), exchange.cycle, now) if stop else []))
        waiting = [agent for agent in living if finishing.waits_for(agent, now)]
        finishing.say(waiting, now)
        if waiting:
            return Step(out, again=False)
        run.enter(RunState.CLOSED, reason, now)
        ending = judge(run.ending, any(exchange.versions), run.stopped_in)
        self.ended = finishing.end(ending, run.table.agents, now)
        return Step([*out, self.ended])

    def _read_local(self, now: float) -> list[Instruction] | None:
        run = self._run
        assert run.ending is not None
        if not self._reads:
            self._reads = True
            length = 0 if run.ending.status == "interrupted" else sum(run.lengths[run.shape.shards :])
            self._deadline = now + STOP_JOB_S + length / STOP_LOCAL_RATE
        return run.read_local(self._exchange.cycle, now)

    def tick(self, now: float) -> list[Instruction]:
        """An order that is not answered in time is given up."""
        run = self._run
        assert run.stopped is not None
        if now <= (run.stopped + STOP_JOB_S if self._deadline is None else self._deadline):
            return []
        out = run.orders.cancel("the run is stopping")
        job = run.orders.abandon()
        if job is not None and run.local.owns(job):
            run.local.give_up("no answer in time", now)
        return out
