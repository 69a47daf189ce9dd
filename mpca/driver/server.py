"""The driver's machine of a server: agents ask for exchanges by themselves. One is served at a time, first come, first served.

`run_machine.py` is what all machines share; `Serving` decides while the run goes on. An agent that has asked waits for its
answer. The JVM brings one question at a time with what the agent sent, and the next one when this one is answered. So every
question is answered, by what the method makes of it (`Method.serve`), or as it follows here:

    waits        until training begins (`count_from`), and while fewer than `min_agents` are there
    not finite   what was sent is not, or makes the joint model so: nothing moves, and the joint state replaces the agent's.
                 With several shards an order brings it the others; the third time it is started anew
    as it is     the run stops: the agent gets the joint state, nothing moves, and Stop is on its way

Irregular flow: *an agent dies with its question*: what an older incarnation sent changes nothing. *Orders* (joiners, local
tensors, stop) go out beside the questions, and no question waits for one.

`cycle` counts the questions that were served: `max_cycles`, evaluations and backups go by it.
"""

from __future__ import annotations

from collections import deque

from mpca.driver.agent_table import AgentTable
from mpca.driver.cycle import CycleMachine
from mpca.driver.dispatcher import Draft
from mpca.driver.events import ExchangeArrived, ExchangeServed, StopRequested
from mpca.driver.instructions import Instruction, Serve, Write
from mpca.driver.machine import Machine
from mpca.driver.run import Run, Step
from mpca.driver.run_machine import RunMachine
from mpca.driver.run_shape import RunShape
from mpca.driver.running import Running
from mpca.driver.states import LIVING, AgentState, RunState
from mpca.methods.base import Method
from mpca.wire.agent_ref import AgentId

__all__ = ["ServerMachine", "Serving", "machine_for"]

_TRAINS = (AgentState.READY, AgentState.BEGUN, AgentState.ACTIVE, AgentState.LATE)


class Serving(Running):
    """Decides in the states RUNNING and PAUSED."""

    counts = "exchange"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._waiting: deque[ExchangeArrived] = deque()  # one; more only after news that one process asks anew
        self._taking: ExchangeArrived | None = None  # the shell takes it in
        self._bad: set[AgentId] = set()  # their newest exchange was not finite

    # ---- what comes next -------------------------------------------------------------------------------------------------

    def advance(self, now: float) -> Step:
        joining = self._run.joining
        waits = joining.waits()
        if waits and now <= joining.deadline:
            return Step(self.serve(now), again=False)
        return self._between(given_up=waits, now=now)

    def _next(self, now: float) -> Step:
        out = self.submit_again(now)
        return Step(out) if out else Step(self.serve(now), again=False)

    @property
    def _there(self) -> int:
        """Late agents count too: one that waits for its turn cannot answer an order in time."""
        return self._run.table.count(*_TRAINS)

    def submit_again(self, now: float) -> list[Instruction]:
        """The order for agents that join or begin, if there are any."""
        run = self._run
        if not run.table.count(AgentState.READY) and not run.joining.targets():
            return []
        run.joining.await_shard(now)
        return self._submit(Draft("begin"), now)

    # ---- questions -------------------------------------------------------------------------------------------------------

    def arrived(self, event: ExchangeArrived, now: float) -> list[Instruction]:
        """What an agent sent is here, and the agent waits.

        Args:
            event: who sent what.
            now: seconds of the machine.

        Returns:
            Serve when its turn is now; a record when the agent is back.
        """
        run, key = self._run, event.id
        run.silence.heard(key, now)
        run.table.trains(key, now)
        found = run.table.find(key)
        if found is None or found.state not in _TRAINS or run.state is RunState.STOPPING:
            return [Serve(event, take=False)]
        out = run.late.back(key, now, "it asked for an exchange") if found.state == AgentState.LATE else []
        if not event.finite:
            return [*out, Serve(event, take=False, reason="not finite")]
        self._bad.discard(key)
        self._waiting = deque(one for one in self._waiting if one.agent != event.agent)
        self._waiting.append(event)
        return out + self.serve(now)

    def serve(self, now: float) -> list[Instruction]:
        """Begin training, when all agents of the start train; then serve who has waited longest, if anybody may be served.

        Args:
            now: seconds of the machine.

        Returns:
            Serve, or nothing; a record when training begins.
        """
        run, table, out = self._run, self._run.table, list[Instruction]()
        if run.state is not RunState.RUNNING or self._there < self._needed or self._end() is not None:
            return out
        if not table.count(AgentState.READY, AgentState.BEGUN) and table.count(AgentState.ACTIVE, AgentState.LATE):
            out = self.count_from(now)
        if not self._waiting or self._taking is not None or run.began is None:
            return out
        event = self._taking = self._waiting.popleft()
        return [*out, Serve(event, take=table.find(event.id) is not None)]

    def served(self, event: ExchangeServed, now: float) -> list[Instruction]:
        """A question was answered.

        Args:
            event: what became of it.
            now: seconds of the machine.

        Returns:
            Its record; Serve for the next.
        """
        sent = event.sent
        self._taking = None if sent is self._taking else self._taking
        if event.taken:
            self.versions[sent.shard] = event.version
            self.cycle += 1
        elif not event.reason:  # the run stops, or the process is gone
            return self.serve(now)
        out = self._unusable(sent, now, event.reason) if event.reason else []
        fields = {
            "cycle": self.cycle - event.taken,
            "shard": sent.shard,
            "agent": sent.agent,
            "incarnation": sent.incarnation,
            "number": sent.number,
            "tau": sent.updates,
            "staleness": event.staleness,
            "version": event.version,
            "share": event.share,
            "wait": sent.arrived - sent.asked,
            "served": event.answered - sent.arrived,
            "bytes": {
                "driver_in": sent.length,
                "driver_out": sent.length,
                **self._run.reader_tracker.take_bytes(),
            },
            "reason": event.reason,
        }
        return [Write("exchange", fields), *out, *self.serve(now)]

    def release(self) -> list[Instruction]:
        """The run stops: answer who still waits.

        Returns:
            Serve for each, without taking anything.
        """
        waiting, self._waiting = self._waiting, deque()
        return [Serve(event, take=False) for event in waiting]

    def _unusable(self, event: ExchangeArrived, now: float, what: str) -> list[Instruction]:
        run, key = self._run, event.id
        self._bad.add(key)
        living = list(run.table.in_state(*LIVING))
        if all(agent.id in self._bad for agent in living):
            why = (
                f"the parameters of all {len(living)} agents are not finite after {self.cycle} exchanges: training diverged; "
                "lower optimizer.lr. What is saved is the last joint model, which is finite"
            )
            run.stop(StopRequested("failed", why, final=True), now)
            return []
        found = run.table.find(key)
        if found is None or found.state != AgentState.ACTIVE:
            return []
        return run.table.unusable(found, event.number, now, what, joins=run.shape.shards > 1)

    def prepare_made(self) -> list[Instruction]:
        return self.release()


class ServerMachine(RunMachine):
    """See the module's text.

    Args:
        shape: what does not change during the run.
        table: its agents, all absent.
        now: seconds of the machine's clock, at which the run is made.
    """

    def __init__(self, shape: RunShape, table: AgentTable, now: float) -> None:
        run = Run(shape, table, now)
        self.serving = Serving(run)
        super().__init__(run, self.serving)
        self._handlers |= {ExchangeArrived: self.serving.arrived, ExchangeServed: self.serving.served}


def machine_for(method: Method, shape: RunShape, table: AgentTable, now: float) -> Machine:
    """The machine of a run of this method; the other arguments are those of the machine."""
    return (ServerMachine if method.asks else CycleMachine)(shape, table, now)
