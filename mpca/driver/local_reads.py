"""When the tensors that stay local (frozen parameters, integer buffers) are read, and from which agent.

Local tensors lie behind the model's shards, in shards of their own. The driver reads them as it reads x_0: one agent freezes
one shard, and a sum of that part alone brings the shard to the driver. It reads them when the shell asks (a model is to be
evaluated or saved), when the run stops, and before an agent whose train function has returned may end. The source is always
the lowest-numbered agent that trains. When the source is lost on the way, the driver asks the next agent, from the first shard
on. When no agent is left, what was read last stays.

This file sends no orders: `step` says what the next one is to do, between two cycles.
"""

from __future__ import annotations

import logging

from mpca.driver.agent_table import Agent, AgentTable
from mpca.driver.dispatcher import Draft
from mpca.driver.instructions import AdoptInitial
from mpca.driver.snapshots import ShardSnapshots
from mpca.driver.states import LIVING, AgentState
from mpca.wire.agent_ref import AgentId
from mpca.wire.orders import NEVER, Order, Part, Reduce, StopAgent

__all__ = ["LocalReads"]

log = logging.getLogger("mpca.cycle")


class LocalReads:
    """One read at a time.

    Args:
        table: the agents.
        shards: of the model; local tensors lie in the shards behind those.
    """

    def __init__(self, table: AgentTable, shards: int) -> None:
        self.wanted = False
        self.ended = 0  # reads so far, successful or given up
        self.took = 0.0  # seconds from the first order of the newest read to its end
        self._table, self._first = table, shards
        self._leaving: set[AgentId] = set()  # their train functions have returned
        self._read: set[AgentId] = set()  # those of them that were read since
        self._source: Agent | None = None
        self._key: AgentId = AgentId(-1, -1)  # of the source when it was chosen
        self._executor = ""
        self._shard = shards
        # Of the newest snapshot. The numbers rise from far below those of the reading of x_0, so that a read can forget all
        # before it, and nothing of its own.
        self._cycle = NEVER
        self._asked = False  # that snapshot is of this shard
        self._frozen = self._summed = False
        self._order = -1
        self._began: float | None = None

    def want(self) -> None:
        """The shell wants the local tensors read."""
        self.wanted = True

    def leaves(self, who: AgentId) -> None:
        """The agent's train function has returned."""
        self._leaving.add(who)
        if self._source is not None and self._key == who:
            self._restart()  # its local tensors are final now

    def owns(self, order: Order) -> bool:
        """Whether the order is part of a read."""
        return any(one is not None and one.shard >= self._first for one in (order.freeze, order.reduce))

    def let_go(self, stop: list[StopAgent]) -> None:
        """These agents were told to stop."""
        self._leaving.difference_update(one.id for one in stop)

    # ---- what is next ------------------------------------------------------------------------------------------------

    def release(self) -> Draft | None:
        """Let those agents end whose train function has returned, and who need not be read or were read.

        Returns:
            The order that tells them; None: there are none.
        """
        self._leaving = {key for key in self._leaving if self._living(key) is not None}
        first = self._choose()
        stop = []
        for key in sorted(self._leaving):
            agent = self._living(key)
            assert agent is not None
            if agent is first and key not in self._read:
                self.wanted = True
            else:
                stop.append(StopAgent(*agent.ref, "its train function has returned"))
        return Draft(f"{len(stop)} agents whose train function has returned", stop=stop) if stop else None

    def step(self, lengths: list[int], now: float) -> Draft | AdoptInitial | None:
        """What the read needs next.

        Args:
            lengths: bytes of every shard, those of the local tensors last.
            now: seconds of the machine.

        Returns:
            The next order, or AdoptInitial for a sum that was made. None: no read is wanted, or no agent can be read.
        """
        if not self.wanted or len(lengths) == self._first:
            self.wanted = False
            return None
        if self._summed:
            return AdoptInitial(self._order, self._shard, lengths[self._shard])
        if self._source is None or not self._usable():
            self._restart()
            self._source = self._choose()
            if self._source is None:
                self._end(now)
                return None
            self._key = self._source.id
            self._executor = self._source.executor or ""
        self._began = now if self._began is None else self._began
        name = f"local tensors of agent {self._source.index}, shard {self._shard}"
        if self._frozen:
            part = Part(self._executor, 1.0)
            return Draft(f"read {name}", reduce=Reduce(self._cycle, self._shard, lengths[self._shard], [part]))
        if not self._asked:  # after a failure the agent is asked for the same snapshot again: it is interrupted once
            self._asked = True
            self._cycle += 1
        draft = Draft(f"freeze {name}", freeze=(self._cycle, self._shard, [self._source]))
        draft.forget_cycle = self._cycle - 1
        return draft

    def sent(self, order: int) -> None:
        """The draft went out as the order of this number."""
        self._order = order

    # ---- what became of it -------------------------------------------------------------------------------------------

    def done(self, order: Order, kept: ShardSnapshots | None) -> None:
        """An order of a read has ended well.

        Args:
            order: the order.
            kept: the answer to a freeze, None for a sum. When the source is not in it, another agent is asked.
        """
        if order.order != self._order:
            return  # the read was begun anew since
        if kept is None:
            self._summed = True
        elif self._key.agent in kept.frozen:
            self._frozen = True
        else:
            self._restart()

    def adopted(self, shards: int, now: float) -> None:
        """The shell holds this shard.

        Args:
            shards: of the model and the local tensors together.
            now: seconds of the machine.
        """
        self._asked = self._frozen = self._summed = False
        self._shard += 1
        if self._shard == shards:
            self._end(now)

    def give_up(self, reason: str, now: float) -> None:
        """End the read without a result, at `now` (seconds of the machine): what was read last stays."""
        if self.wanted:
            log.warning("local tensors were not read, what was read last is kept: %s", reason)
            self._restart()
            self._end(now)

    def _end(self, now: float) -> None:
        self.took = 0.0 if self._began is None else now - self._began
        self.ended += 1
        if self._source is not None and self._key in self._leaving:
            self._read.add(self._key)
        self.wanted, self._source, self._shard, self._began = False, None, self._first, None

    def _restart(self) -> None:
        self._source, self._shard, self._order = None, self._first, -1
        self._asked = self._frozen = self._summed = False

    # ---- who -----------------------------------------------------------------------------------------------------------

    def _living(self, key: AgentId) -> Agent | None:
        found = self._table.find(key)
        return found if found is not None and found.state in LIVING and found.executor in self._table.executors else None

    def _choose(self) -> Agent | None:
        for agent in self._table.agents:
            key = agent.id
            if self._living(key) is not None and (agent.state == AgentState.ACTIVE or key in self._leaving):
                return agent
        return None

    def _usable(self) -> bool:
        """Whether the read can go on. Before the freeze the agent itself must answer.

        What was frozen is its executor's, whatever became of the agent; but of an executor that failed, all agents are LATE.
        """
        agent = self._living(self._key)
        if self._frozen and agent is None:
            return self._executor in self._table.executors
        return agent is not None and (agent.state == AgentState.ACTIVE or self._key in self._leaving)
