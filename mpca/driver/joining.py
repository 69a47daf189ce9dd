"""How agents come in: they say hello, x_0 is agreed or the joint model handed to them, and then they begin.

At the start, x_0 is read from one agent, shard by shard, and agents whose hash is the same need nothing. Everyone else
(another x_0, a replacement, a resumed run, parameters that were not finite) takes the joint model as its own: it is
published once for all who are waiting, and a later joiner gets a newer one.
"""

from __future__ import annotations

from typing import Any

from mpca.driver.agent_id import AgentId
from mpca.driver.agent_table import Agent, AgentTable
from mpca.driver.events import Acknowledged, JointPublished
from mpca.driver.published import PublishedShard
from mpca.driver.states import AgentState
from mpca.wire.messages import Hello

__all__ = ["Joining"]


class Joining:
    """Hellos, the reading of x_0, and the joint model on its way to those who join."""

    def __init__(self, table: AgentTable) -> None:
        self.hello: Hello | None = None  # the first one: what is trained
        self.source: Agent | None = None  # whose x_0 is read
        self.read = 0  # shards of x_0 that are known
        self.joint: list[PublishedShard] = []
        self.deadline = 0.0  # for their acknowledgements of the joint model; seconds of the machine
        self._for: set[AgentId] = set()  # who takes this joint model
        self._hashes: dict[int, str] = {}
        self._table = table

    def greet(self, hello: Hello) -> str:
        """Remember a Hello; the answer says what is wrong with it, or is empty."""
        if self.hello is None:
            self.hello = hello
        self._hashes[hello.agent] = hello.x0_hash
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
        """Read x_0 from the first agent that waits, from its first shard on."""
        self.read = 0
        self.source = next(self._table.in_state(AgentState.JOINING), None)
        return self.source is not None

    def agree(self, now: float) -> None:
        """x_0 is known: those who have the same are ready, the others will take it."""
        assert self.source is not None
        same = self._hashes[self.source.index]
        for agent in list(self._table.in_state(AgentState.JOINING)):
            if self._hashes[agent.index] == same:
                self._table.move(agent, AgentState.READY, now, "x_0 agreed")

    # ---- the joint model for joiners -------------------------------------------------------------------------------

    def published(self, event: JointPublished, cycle: int) -> None:
        self._for = {a.id for a in self._table.in_state(AgentState.JOINING)}
        self.joint = [
            PublishedShard(cycle, shard, broadcast, version, length) for shard, broadcast, version, length in event.broadcasts
        ]

    def targets(self) -> list[list[Any]]:
        """Keys of agents that still wait for some shard of it."""
        return [
            a.key for a in self._table.in_state(AgentState.JOINING) if a.id in self._for and a.executor in self._table.executors
        ]

    def acknowledged(self, event: Acknowledged, now: float) -> None:
        key = event.id
        for one in self.joint:
            if one.broadcast == event.broadcast:
                one.acked.add(key)
        found = self._table.find(key)
        if found is None or found.state != AgentState.JOINING or key not in self._for or not self.joint:
            return
        if all(key in one.acked for one in self.joint):
            self._for.discard(key)  # should it have to join again, it takes a newer one
            self._table.move(found, AgentState.READY, now, "it has the joint model")

    def waits(self) -> bool:
        """Whether somebody was told to download the joint model and has not acknowledged all of it.

        The cycle waits for that, as for every download: a joint model that arrives cycles later is an old one.
        """
        return any(
            AgentId(agent, incarnation) in one.asked - one.acked
            for _, agent, incarnation in self.targets()
            for one in self.joint
        )

    def take_done(self, given_up: bool) -> list[PublishedShard]:
        """The joint model's broadcasts once nobody waits for them any more, or their time is over: then a newer one follows."""
        if not self.joint or (self.targets() and not given_up):
            return []
        done, self.joint = self.joint, []
        return done
