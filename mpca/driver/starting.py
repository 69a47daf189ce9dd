"""The start of a run: all agents say hello, then the driver reads x_0 from one of them, and may cut the model anew.

It reads shard by shard. A first order freezes the shard, a second one sums it with weight 1 (its tau is still 0), then the
shell takes the sum. The cycles of these orders are negative and end with -1. Local tensors lie in shards behind the model's
and are read along.

An "auto" number of shards is decided when x_0 is known: nothing was installed or counted yet, and no agent has taken a step. If
it is not the number that agents were started with, an order tells those that have said hello, and they say hello again, each
with a segment of the new shards. Agents that are started from then on know the new number.
"""

from __future__ import annotations

from mpca.driver.cutting import Cutting
from mpca.driver.dispatcher import Draft
from mpca.driver.events import Initial, OrderDone, StopRequested
from mpca.driver.instructions import AdoptInitial, Instruction
from mpca.driver.published import Sum
from mpca.driver.run import WAIT, Run, Step
from mpca.driver.snapshots import ShardSnapshots
from mpca.driver.states import LIVING, AgentState, RunState
from mpca.wire.agent_ref import AgentId, AgentRef
from mpca.wire.orders import Order, Part, Reduce

__all__ = ["Starting"]


class Starting:
    """Decides in the states STARTING and READING.

    Args:
        run: what the parts of the machine share.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._held = False  # the source's executor holds the shard that is read
        self._sum: Sum | None = None  # made, and not taken by the shell yet
        self._read_from: AgentId | None = None  # the process whose x_0 is read
        self._since = run.made_at  # seconds of the machine: from then on `start_timeout` counts
        self._cutting = Cutting()
        self._uncut: list[AgentRef] = []  # those whom no order has told yet that they must cut the model anew

    def advance(self, now: float) -> Step:
        """Wait for hellos. When all agents have said hello, or enough of them in time, x_0 is read.

        Args:
            now: seconds of the machine.

        Returns:
            Instructions, and whether to look again at once.
        """
        run, shape, table = self._run, self._run.shape, self._run.table
        hellos, wanted = table.count(AgentState.JOINING), len(table.agents)
        self._uncut = [who for who in self._uncut if self._waits_for(who)]
        if self._uncut:
            draft = Draft(f"cut the model into {shape.shards} shards", cut=self._uncut)
            return Step(run.orders.submit(draft, -1, now))
        timed_out = now - self._since >= shape.start_timeout_s
        if hellos == wanted or (timed_out and hellos >= shape.min_agents):
            if run.joining.knows:
                run.joining.agree(now)
                run.enter(RunState.RUNNING, f"{hellos}/{wanted} agents have cut the model anew", now)
            elif shape.resumed:
                run.enter(RunState.RUNNING, "the joint model comes from a backup", now)
            else:
                run.enter(RunState.READING, f"{hellos}/{wanted} agents said hello", now)
                self._choose_source()
            return Step([])
        if not timed_out:
            return WAIT
        late = table.count(AgentState.STARTING)
        hint = f"{late} were started and have not: is it called, before the loop? What they printed is above" if late else ""
        died = next((one for one in table.agents if one.lost), None)
        if died is not None and not late:
            hint = f"agent {died.index} was lost: {died.lost}"
        why = (
            f"{hellos}/{wanted} agents called mpca.attach within cluster.start_timeout={shape.start_timeout_s:.0f}s, "
            f"{len(table.executors)} executors are there and min_agents={shape.min_agents}; "
            f"{hint or 'look at the logs of executors'}, or raise cluster.start_timeout"
        )
        run.stop(StopRequested("failed", why), now)
        return Step([])

    def advance_reading(self, now: float) -> Step:
        """The next order of the reading, or its end.

        Args:
            now: seconds of the machine.

        Returns:
            Instructions, and whether to look again at once.
        """
        run, joining = self._run, self._run.joining
        source, shard = joining.source, joining.read
        gone = source is None or source.id != self._read_from or source.state != AgentState.JOINING
        if gone and not joining.knows:
            if not self._choose_source():
                run.enter(RunState.STARTING, "the agent whose x_0 was being read is gone", now)
            return Step([])
        if self._sum is not None:
            done, self._sum = self._sum, None
            return Step(run.ask(AdoptInitial(done.order, done.shard, done.length)))
        if shard == len(run.lengths):
            if not joining.knows:
                joining.known()
            if run.shape.auto_shards and not run.decided:
                if not self._cutting.knows:
                    out = run.orders.submit(Draft("measure an order that does nothing"), -1, now)
                    return Step(out, again=bool(out))
                model = sum(run.lengths[: run.shape.shards])
                run.decided = self._cutting.decide(model)
                if run.decided["shards"] != run.shape.shards:
                    return Step(self._cut(run.decided["shards"], now))
            joining.agree(now)
            run.enter(RunState.RUNNING, "x_0 is known", now)
            return Step([])
        cycle = shard - len(run.lengths)
        assert source is not None
        draft = Draft(f"read x_0 of agent {source.index}, shard {shard}", forget_cycle=cycle - 1)
        if self._held:
            draft.reduce = Reduce(cycle, shard, run.lengths[shard], [Part(source.executor or "", 1.0)])
            # Where the number of shards is "auto", they are cut only when x_0 is known, and a third of a large model, which
            # passes two links, may take longer than a shard will. A lost executor ends it at once.
            draft.patience_s = run.shape.start_timeout_s
        else:
            draft.freeze = (cycle, shard, [source])
        return Step(run.orders.submit(draft, cycle, now))

    def order_done(self, order: Order, event: OrderDone, now: float) -> None:
        """An order of the reading has ended well.

        Args:
            order: the order.
            event: its answers.
            now: seconds of the machine.
        """
        run = self._run
        if order.cut is not None:
            self._uncut = []
        if order.reduce is not None:
            self._sum = Sum(order.order, order.reduce.cycle, order.reduce.shard, order.reduce.length)
            self._cutting.brought(event.answers, order.reduce.length)
        elif order.cut is None:
            self._cutting.empty(event.end - event.start)
        if order.freeze is None:
            return
        kept, _ = ShardSnapshots.of(order.freeze, event.answers, set(run.table.executors))
        for one in kept.frozen.values():
            run.silence.heard(one.id, now)
        if kept.none_is_finite(run.table.in_state(*LIVING)):
            run.stop(kept.diverged(), now)
        source = run.joining.source
        self._held = source is not None and source.index in kept.frozen

    def adopted(self, event: Initial) -> None:
        """The shell holds x_0 of this shard."""
        self._held = False
        self._run.joining.read = event.shard + 1

    def _cut(self, shards: int, now: float) -> list[Instruction]:
        """Go back to the hellos, with another number of shards. x_0 stays known."""
        run = self._run
        out = run.cut(shards)
        run.enter(RunState.STARTING, f"x_0 is known, and the model is cut into {shards} shards", now)
        self._uncut, started = run.table.cut_anew(now)
        self._since = now
        return out + started

    def _waits_for(self, who: AgentRef) -> bool:
        """Whether the agent has not said hello with the new shards."""
        found = self._run.table.find(who.id)
        return found is not None and found.state is AgentState.STARTING and who.executor in self._run.table.executors

    def _choose_source(self) -> bool:
        """Read from the first shard on, and drop what was made of another agent's x_0. False: no agent can be read."""
        self._held, self._sum = False, None
        found = self._run.joining.choose_source()
        self._read_from = None if self._run.joining.source is None else self._run.joining.source.id
        return found
