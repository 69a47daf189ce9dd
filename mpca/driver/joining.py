"""How agents join: they say hello, they agree on x_0 or take the joint model, and then they begin.

At the start the driver reads x_0 from one agent, shard by shard; agents whose x_0 has the same hash need nothing. All others
(another x_0, a replacement, a resumed run, parameters that were not finite) take the joint model as their own. The driver
publishes it once for all who wait, and a later joiner gets a newer one. The whole model may take longer than
`cluster.cycle_deadline`: that is for one shard, and counts anew with each that has arrived somewhere. What did not come in
time is sent anew, and may then take twice and four times as long: on a busy link it would else never be there.
"""

from __future__ import annotations

from dataclasses import replace

from mpca.driver.agent_table import Agent, AgentTable
from mpca.driver.events import Acknowledged, JointPublished
from mpca.driver.published import PublishedShard
from mpca.driver.states import AgentState
from mpca.wire.agent_ref import AgentId, AgentRef
from mpca.wire.messages import Hello

__all__ = ["Joining"]

#: Times `cluster.cycle_deadline`, at most. An executor that hangs is lost by Spark's own word after two minutes.
_MOST_PATIENCE = 4


class Joining:
    """Hellos, the reading of x_0, and the joint model on its way to those who join."""

    def __init__(self, table: AgentTable, deadline_s: float) -> None:
        """`deadline_s`: how long the next shard of the joint model may take."""
        self.hello: Hello | None = None  # the first one: it says what is trained
        self.source: Agent | None = None  # the agent whose x_0 is read
        self.read = 0  # shards of x_0 that the shell holds
        self.joint: list[PublishedShard] = []
        self.deadline = 0.0  # for the joiners' acknowledgements of the joint model; seconds of the machine
        self._for: set[AgentId] = set()  # processes that take this joint model
        self._hashes: dict[int, str] = {}
        self._x0_hash = ""  # of the x_0 that was read
        self._table, self._deadline_s = table, deadline_s
        self._patience = 1  # times that, for the joint model on its way

    def greet(self, hello: Hello) -> str:
        """Remember a Hello.

        Returns:
            What is wrong with it; empty: nothing.
        """
        if self.hello is None:
            self.hello = hello
        self._hashes[hello.agent] = hello.x0_hash
        if not self.hello.bounds:  # the first hello behind a cut
            self.hello = replace(self.hello, bounds=hello.bounds)
        first = self.hello
        if hello.layout == first.layout and hello.bounds == first.bounds and hello.local == first.local:
            return ""
        if hello.layout == first.layout and hello.local != first.local:
            others = sorted(name for name in {*hello.local, *first.local} if hello.local.get(name) != first.local.get(name))
            return (
                f"agents keep different local tensors: {others[0]} of agent {first.agent} is {first.local.get(others[0])}, of "
                f"agent {hello.agent} {hello.local.get(others[0])}; the train function must build the same model everywhere"
            )
        ours, theirs = f"{len(first.layout)} tensors", f"{len(hello.layout)}"
        for one, other in zip(first.layout, hello.layout, strict=False):
            if one != other:
                ours, theirs = (" ".join(str(what) for what in (*row[:2], *row[4:])) for row in (one, other))
                break
        return (
            f"agents build different models: agent {first.agent} has {ours}, agent {hello.agent} has {theirs}; "
            "the train function must build the same model everywhere"
        )

    # ---- x_0 -------------------------------------------------------------------------------------------------------

    def choose_source(self) -> bool:
        """Read x_0 from the first agent that waits, beginning with its first shard.

        Returns:
            Whether there is such an agent.
        """
        self.read = 0
        self.source = next(self._table.in_state(AgentState.JOINING), None)
        return self.source is not None

    @property
    def knows(self) -> bool:
        """Whether x_0 is known, all of it from one agent."""
        return bool(self._x0_hash)

    def known(self) -> None:
        """The shell holds x_0 of every shard."""
        assert self.source is not None
        self._x0_hash = self._hashes[self.source.index]

    def cut(self) -> None:
        """The model is cut anew: the next hello says where."""
        assert self.hello is not None
        self.hello = replace(self.hello, bounds=[])

    def agree(self, now: float) -> None:
        """The driver knows x_0: agents that have the same are READY, the others will take the joint model."""
        for agent in list(self._table.in_state(AgentState.JOINING)):
            if self._hashes[agent.index] == self._x0_hash:
                self._table.move(agent, AgentState.READY, now, "x_0 agreed")

    # ---- the joint model for joiners -------------------------------------------------------------------------------

    def published(self, event: JointPublished, cycle: int) -> None:
        """The joint model is published for the agents that are JOINING now.

        Args:
            event: its broadcasts.
            cycle: the cycle that goes on, or is next.
        """
        self._for = {a.id for a in self._table.in_state(AgentState.JOINING)}
        self.deadline = 0.0  # the one before had another
        self.joint = [
            PublishedShard(cycle, shard, broadcast, version, length) for shard, broadcast, version, length in event.broadcasts
        ]

    def targets(self) -> list[AgentRef]:
        """Agents that still wait for some shard of it."""
        found = filter(None, map(self._target, self._for))
        return [agent.ref for agent in sorted(found, key=lambda agent: agent.index)]

    def _target(self, key: AgentId) -> Agent | None:
        found = self._table.find(key)
        there = found is not None and found.state == AgentState.JOINING and found.executor in self._table.executors
        return found if there else None

    @staticmethod
    def _waits_for(key: AgentId, one: PublishedShard) -> bool:
        return key in one.asked and key not in one.acked

    def acknowledged(self, event: Acknowledged, now: float) -> None:
        """An executor has a broadcast for an agent. An agent that has every shard is READY."""
        key = event.id
        for one in self.joint:
            if one.broadcast == event.broadcast:
                if self._waits_for(key, one):
                    self.await_shard(now)
                one.acked.add(key)
        found = self._table.find(key)
        if found is None or found.state != AgentState.JOINING or key not in self._for or not self.joint:
            return
        if all(key in one.acked for one in self.joint):
            self._patience = 1
            self._for.discard(key)  # if the agent must join again, it takes a newer joint model
            self._table.move(found, AgentState.READY, now, "it has the joint model")

    @property
    def patience_s(self) -> float:
        """How long the next shard of the joint model on its way may take."""
        return self._patience * self._deadline_s

    def await_shard(self, now: float) -> None:
        """From now on the next shard of the joint model has its time."""
        self.deadline = max(self.deadline, now + self.patience_s)

    def waits(self) -> bool:
        """Whether an agent was told to download the joint model and has not acknowledged all of it.

        The cycle waits for that, as for every download: a joint model that arrives cycles later is an old one.
        """
        return any(self._target(key) is not None and any(self._waits_for(key, one) for one in self.joint) for key in self._for)

    def take_done(self, given_up: bool) -> list[PublishedShard]:
        """Take the joint model's broadcasts once no agent waits for them, or their time is over. A newer joint model follows.

        Args:
            given_up: whether their time is over.

        Returns:
            The broadcasts to withdraw, or none.
        """
        if not self.joint or (self.targets() and not given_up):
            return []
        if given_up:
            self._patience = min(2 * self._patience, _MOST_PATIENCE)
        done, self.joint = self.joint, []
        return done
