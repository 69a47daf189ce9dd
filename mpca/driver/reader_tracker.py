"""Which agents read the data, as the driver knows it: where each of them is, which was lost or joined, and which has heard so.

`mpca.data.plan.Readers` is that list; every agent computes its own share from it. Agents report their positions with
Progress, every half second. Orders carry the newest list to the agents that have not received it.

An agent counts as lost when an order is written and its process is another one, or it has no process while others read. A late
agent lives and keeps its share. Agents that read no data of the run hear nothing of all this. Where the data lie on HDFS,
agents hear before their first step which agent lives on which host.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from mpca.data.plan import Readers
from mpca.driver.agent_table import Agent
from mpca.driver.events import AgentProgress
from mpca.driver.states import AgentState
from mpca.errors import BackupError
from mpca.wire.agent_ref import AgentId
from mpca.wire.orders import Order, ReadersOrder

__all__ = ["ReaderTracker"]

log = logging.getLogger("mpca.data")


class ReaderTracker:
    """See the module's text.

    Args:
        agents: of the run.
        left: `position` of the attempt that this one goes on from.
        shard_hosts: hosts that hold each shard of the data; empty: not on HDFS.

    Raises:
        BackupError: `left` is damaged.
    """

    def __init__(self, agents: int, left: dict[str, Any] | None = None, shard_hosts: Sequence[Sequence[str]] = ()) -> None:
        self.readers = Readers.of(agents)
        self._reads = bool(left)  # some agent reads data of the run
        if left:
            try:
                at = {int(agent): (int(epoch), int(done)) for agent, epoch, done in left["at"]}
                self.readers = Readers.from_dict(left["readers"]).go_on(agents, at, int(left["last"]))
            except (KeyError, TypeError, ValueError) as error:
                raise BackupError(f"the backup's position in the data is damaged: {type(error).__name__}: {error}") from error
        self.readers = replace(self.readers, shard_hosts=tuple(map(tuple, shard_hosts)))
        self._firsts = (self.readers, self.readers.firsts())  # of the list that stands beside it
        self._version = 1 if left else 0  # agents know the first list of a new run by themselves
        self._told: dict[AgentId, int] = {}  # the newest version that each process has heard of
        self._process: dict[int, int] = {}  # agent that reads -> its incarnation
        self._away: set[int] = set()  # agents that were lost, and have not joined again
        self._at: dict[int, tuple[int, int]] = {}  # agent that reads -> epoch and finished units in it
        self._last = self.readers.last  # newest epoch that anybody has begun
        self._bytes: dict[AgentId, tuple[int, int]] = {}  # bytes read for each process, and those of them from other hosts
        self._bytes_taken = (0, 0)

    def progress(self, event: AgentProgress) -> None:
        """An agent says where it is, and its executor what it read for the agent."""
        self._bytes[event.id] = event.data_read, event.data_remote
        if not event.data or self._process.get(event.agent) != event.incarnation:
            return
        epoch, done, ahead = event.data
        self._reads = True
        # an agent that has just begun may not have heard yet with which epoch it begins
        self._at[event.agent] = max((epoch, done), (self._first(event.agent), 0))
        self._last = max(self._last, ahead)

    def look(self, agents: Iterable[Agent], beginning: Sequence[int]) -> None:
        """An order is written now: compare the agents with the list.

        Args:
            agents: all agents of the run.
            beginning: numbers of those that begin with this order.
        """
        before = self.readers
        if beginning and not self._process:  # no agent has begun: now the list can say where each of them lives
            for agent in agents:
                self._settle(agent, self._first(agent.index))
        for agent in agents:
            index, process = agent.index, self._process.get(agent.index)
            gone = agent.state == AgentState.ABSENT or (process is not None and agent.incarnation != process)
            if gone and index not in self._away and self._process:
                self._lose(index)
        known = {agent.index: agent for agent in agents} if beginning else {}
        for index in beginning:
            agent = known[index]
            if index in self._away:
                self._join(index)
                self._settle(agent, self._first(index))
            elif self.readers.shard_hosts:
                self._settle(agent, self._newest() + 1)
            self._process.setdefault(index, agent.incarnation)
        if self.readers is not before:
            self.readers = self.readers.forget(min((self._where(one)[0] for one in self._taking_part()), default=0))
            self._version += 1

    def tell(self, agents: Iterable[Agent]) -> ReadersOrder | None:
        """What an order brings to those of these agents that have not received the newest list.

        Returns:
            Part of an order; None: all have it, or no agent reads.
        """
        if not self._reads and not self.readers.shard_hosts:
            return None
        unaware = [one.ref for one in agents if self._told.get(one.id, 0) < self._version]
        return ReadersOrder(self._version, self.readers.to_dict(), unaware) if unaware else None

    def delivered(self, order: Order) -> None:
        """An order has ended well."""
        if order.readers is not None:
            self._told.update(dict.fromkeys((who.id for who in order.readers.agents), order.readers.version))

    def take_bytes(self) -> dict[str, int]:
        """Bytes that were read for the agents since the last call, as a `cycle` record says it."""
        (read_before, remote_before), totals = self._bytes_taken, list(self._bytes.values())
        read, remote = self._bytes_taken = sum(one for one, _ in totals), sum(one for _, one in totals)
        return {"data_read": read - read_before, "data_remote": remote - remote_before}

    def position(self) -> dict[str, Any]:
        """What a later attempt goes on from; empty when no agent reads."""
        if not self._reads:
            return {}
        at = [[agent, *self._where(agent)] for agent in sorted(self._taking_part())]
        return {"readers": self.readers.to_dict(), "at": at, "last": self._newest()}

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _lose(self, agent: int) -> None:
        epoch, done = self._where(agent)
        self._away.add(agent)
        self._process.pop(agent, None)
        self._at.pop(agent, None)
        self.readers = self.readers.lose(agent, epoch, done, self._newest())
        log.info("agent=%d reads no more: epoch=%d finished_units=%d; the living take the rest", agent, epoch, done)

    def _join(self, agent: int) -> None:
        self._away.discard(agent)
        epoch = self._newest() + 1
        self.readers = self.readers.join(agent, epoch)
        log.info("agent=%d reads from epoch=%d on, which nobody has begun", agent, epoch)

    def _settle(self, agent: Agent, epoch: int) -> None:
        """Take down where an agent lives, if that is another host than before, from an epoch on that no agent has begun."""
        if self.readers.shard_hosts and agent.host and self.readers.home(agent.index) != agent.host:
            self.readers = self.readers.settle(agent.index, epoch, agent.host)

    def _where(self, agent: int) -> tuple[int, int]:
        return self._at.get(agent) or (self._first(agent), 0)

    def _first(self, agent: int) -> int:
        if self._firsts[0] is not self.readers:
            self._firsts = self.readers, self.readers.firsts()
        return self._firsts[1].get(agent, 0)

    def _newest(self) -> int:
        """The newest epoch that any agent has begun. An agent that has not said yet is in its first one."""
        return max(self._last, *(self._where(agent)[0] for agent in self._taking_part()), -1)

    def _taking_part(self) -> set[int]:
        return {agent for agent, _ in self.readers.since} - self._away
