"""One simulated executor: its registry (`executor.ExecutorState`), its snapshots, its agents, its block storage.

In production several threads of the executor do this. The cluster gives the node orders; the node reports to the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from zlib import crc32

import numpy as np

from mpca.agent.events import Ask, Publish, Take
from mpca.agent.state import STOPPING
from mpca.algorithm.averaging import local_mean
from mpca.driver.events import AgentBack, AgentFailedEvent, AgentFinished, AgentProgress, AgentSaved, ClusterEvent
from mpca.sim.agents import SimAgent
from mpca.sim.check import Checker
from mpca.sim.clocks import NodeClock
from mpca.sim.coded import Coding
from mpca.sim.executor import Answered, Back, Drop, ExecutorState, Interrupt, Write
from mpca.sim.links import Link
from mpca.wire.agent_ref import AgentId
from mpca.wire.messages import Begin, Cut, Install, ReadersChanged, SaveState, SnapshotRequest, Stop
from mpca.wire.orders import Freeze, Frozen, Late, Rediscovered

__all__ = ["Node", "Reports"]

_BEGIN = Begin()


class Reports(Protocol):
    """Where an executor reports: its cluster."""

    watch: Checker
    local: bool  # models have a tensor that stays local
    files: dict[str, dict[str, Any]]  # what agents have saved, by URL
    coding: Coding | None  # what travels is encoded

    def emit(self, event: ClusterEvent) -> None:
        """The driver is to hear this event."""
        ...

    def hello(self, node: Node, agent: SimAgent) -> None:
        """An agent on this node says hello."""
        ...

    def ask(self, node: Node, agent: SimAgent, one: Ask, data: np.ndarray, start: float) -> None:
        """An agent on this node asks for an exchange; `start` is in seconds of the driver's clock."""
        ...

    def frozen(self, node: Node, ticket: int, frozen: list[Frozen], late: dict[int, Late], weight: float) -> None:
        """This node answers a freeze. `weight` is the sum of tau in its part."""
        ...

    def kill_process(self, node: Node, one: SimAgent) -> None:
        """A process on this node dies."""
        ...


class Node:
    """See the module's text; `agents.Host` documents what agents say.

    Args:
        name: id of the executor.
        host: where it runs.
        cluster: hears its reports.
        clock: of its host.
        driver: its link to the driver.
        peers: its link to the other executors.
    """

    def __init__(self, name: str, host: str, cluster: Reports, clock: NodeClock, driver: Link, peers: Link) -> None:
        self.name, self.host = name, host
        self.clock, self.driver, self.peers = clock, driver, peers
        self.alive = True
        self.damages = 0  # how many of its next transfers arrive with a wrong checksum
        self.book = ExecutorState()
        self.agents: dict[int, SimAgent] = {}
        self._weights: dict[int, Callable[[int], float]] = {}  # by cycle: how much a yield counts, from its tau
        #: By cycle: weight and part of a sum, which a freeze made of this executor's snapshots; uint8 where it is encoded.
        self.blocks: dict[int, tuple[float, np.ndarray]] = {}
        self.yields: dict[tuple[int, AgentId], tuple[np.ndarray, Frozen]] = {}  # by cycle and process
        self.broadcasts: set[int] = set()
        self._slots: dict[tuple[int, int], np.ndarray] = {}
        self._saves: dict[AgentId, tuple[int, str]] = {}  # number of the newest Save of each process, and where it goes
        self._unsaved: set[AgentId] = set()  # processes that have not answered it
        self._cluster = cluster

    # ---- orders --------------------------------------------------------------------------------------------------------

    def forget(self, cycle: int, broadcasts: list[int]) -> None:
        """Forget the yields and parts of this cycle and those before it, and these broadcasts."""
        self._perform(self.book.forget(cycle))
        for old in [one for one in self.blocks if one <= cycle]:
            del self.blocks[old]
        self.broadcasts.difference_update(broadcasts)

    def tell_readers(self, who: AgentId, version: int, readers: dict[str, Any]) -> None:
        """Send a process the list of the data's readers."""
        found = self._find(who)
        if found is not None:
            found.receive(ReadersChanged(version, readers))

    def cut(self, who: AgentId, shards: int) -> None:
        """Tell a process to cut the model anew."""
        found = self._find(who)
        if found is not None and found.machine.shards != shards:  # as the registry: an order may come twice
            found.receive(Cut(shards))

    def begin(self, who: AgentId) -> None:
        """Tell a process to begin."""
        found = self._find(who)
        if found is not None:
            found.receive(_BEGIN)

    def save(self, who: AgentId, number: int, url: str) -> None:
        """Have a process save what is its own. The driver hears of it once, also when the order comes twice."""
        if self._saves.get(who, (0, ""))[0] >= number:
            return
        self._saves[who] = number, url
        found = self._find(who)
        if found is not None:
            self._unsaved.add(who)
            found.receive(SaveState(number))
        else:
            self._say_saved(who, number, "the agent is not there")

    def stop(self, who: AgentId, reason: str) -> None:
        """Tell a process to stop, and why."""
        found = self._find(who)
        if found is not None:
            found.receive(Stop(reason))

    def freeze(self, ticket: int, freeze: Freeze, agents: list[AgentId]) -> None:
        """Freeze yields. `Reports.frozen` is called when each of them is frozen or late.

        Args:
            ticket: comes back in that call.
            freeze: cycle and shard of the yields, and how much they count.
            agents: whose.
        """
        self._weights[freeze.cycle] = freeze.weight
        self._perform(self.book.freeze(ticket, freeze.cycle, freeze.shard, agents))

    def deadline(self, cycle: int) -> None:
        """The time of this cycle is over: what was not handed over is late."""
        self._perform(self.book.deadline(cycle))

    def offer(self, who: AgentId, shard: int, version: int, mode: str, data: np.ndarray, alpha: float) -> bool:
        """Hand a download to an agent.

        Args:
            who: its process.
            shard: which one.
            version: of the joint state.
            mode: "install" or "replace".
            data: float32, the shard.
            alpha: of the pull towards it.

        Returns:
            Whether the executor took it: it acknowledges what it takes.
        """
        self._cluster.watch.offered(who, shard, version, mode, data)
        if self._cluster.coding is not None:
            data = self._cluster.coding.arrival(self.name, who, shard, mode, data)
        out = self.book.offer(who, shard, version, mode, (data, alpha))
        self._perform(out)
        return bool(out)

    def answer(self, who: AgentId, shard: int, version: int, mode: str, data: np.ndarray, share: float) -> None:
        """Hand the answer to an Exchange to its agent; arguments as those of `offer`."""
        self._perform(self.book.offer(who, shard, version, mode, (data, share), answer=True))

    def sends(self) -> bool:
        """Whether the next transfer arrives whole. A damaged one is fetched once more."""
        for _ in range(2):
            if not self.damages:
                return True
            self.damages -= 1
        return False

    def slots(self) -> list[tuple[int, np.ndarray]]:
        """(shard, vector) of what lies in agents' arrival slots."""
        return [(shard, vector) for (_, shard), vector in self._slots.items()]

    def living(self) -> list[Rediscovered]:
        """Processes that live here, as an answer to `rediscover`."""
        return [Rediscovered(*one.id, one.pid) for one in self.agents.values() if one.alive]

    def _tell(self, event: ClusterEvent) -> None:
        """Let the driver hear an event, once the link is open."""
        self.driver.send(self._cluster.emit, event)

    def _find(self, who: AgentId) -> SimAgent | None:
        found = self.agents.get(who.agent)
        return found if found is not None and found.id == who else None

    # ---- what agents say -------------------------------------------------------------------------------------------------

    def hello(self, agent: SimAgent) -> None:
        """As `agents.Host.hello`: the registry knows the process, and the cluster hears of it."""
        trainer = agent.trainer
        for shard in range(len(trainer.bounds) - 1):  # as `attach` does: distances are measured from x_0 at first
            x0 = np.empty(trainer.bounds[shard + 1] - trainer.bounds[shard], np.float32)
            trainer.snapshot(shard, x0)
            self._slots[(agent.agent, shard)] = x0
        self._perform(self.book.agent_up(agent.id))
        self._cluster.hello(self, agent)

    def stepped(self, agent: SimAgent, updates: int) -> None:
        self._cluster.watch.stepped(agent.id, updates)

    def non_finite_again(self, agent: SimAgent) -> None:
        self._cluster.watch.non_finite_again(agent.agent)

    def snapshot(self, agent: SimAgent, one: Publish, data: np.ndarray, start: float, end: float) -> None:
        """As `agents.Host.snapshot`: measure it, and keep the bytes if the registry accepts them."""
        crc = crc32(data.data)
        finite = bool(np.isfinite(data).all())
        cycle, shard, updates = one
        base = self._slots.get((agent.agent, shard), data)  # local tensors have no joint state to be far from
        distance = float(np.linalg.norm(data.astype(np.float64) - base)) if finite else float("nan")
        trained = self._cluster.watch.snapshot(agent.id, cycle, shard)
        instructions = self.book.snapshot(agent.id, cycle, shard, updates, crc, finite)
        if self.book.is_frozen(cycle, agent.id):
            pause = self.clock.of_driver(start), self.clock.of_driver(end)
            frozen = Frozen(*agent.id, updates, crc, finite, distance, *pause)
            self.yields.setdefault((cycle, agent.id), (data, frozen))
            stopping = agent.machine.state is STOPPING
            self._cluster.watch.frozen(cycle, shard, frozen, data, trained, stopping)
        self._perform(instructions)

    def saved(self, agent: SimAgent, number: int, state: dict[str, Any], error: str) -> None:
        """As `agents.Host.saved`: the file is there at once."""
        self._unsaved.discard(agent.id)
        if not error:
            self._cluster.files[self._saves[agent.id][1]] = state
        self._say_saved(agent.id, number, error)

    def _say_saved(self, who: AgentId, number: int, error: str) -> None:
        self._tell(AgentSaved(self.name, *who, number, 0, "", 0.0, error))

    def went_on(self, agent: SimAgent, taus: list[int]) -> None:
        self._cluster.watch.went_on(agent.id, taus)

    def ask(self, agent: SimAgent, one: Ask, data: np.ndarray, start: float) -> None:
        """As `agents.Host.ask`."""
        trained = self._cluster.watch.snapshot(agent.id, one.number, one.shard)
        self._cluster.watch.server.sent(agent.id, one, data, trained)
        self._cluster.ask(self, agent, one, data, self.clock.of_driver(start))

    def arrival(self, agent: int, shard: int) -> np.ndarray:
        return self._slots[(agent, shard)]

    def took(self, agent: SimAgent, one: Take) -> None:
        """As `agents.Host.took`: the slot is free by that."""
        self._cluster.watch.taken(agent, one.shard, one.version, one.mode)
        self.installed(agent, one.shard, one.version)

    def installed(self, agent: SimAgent, shard: int, version: int) -> None:
        self._perform(self.book.installed(agent.id, shard, version))

    def progress(self, agent: SimAgent) -> None:
        """As `agents.Host.progress`: the cluster hears of it at once."""
        updates, loss = agent.updates, agent.trainer.loss
        logged = {"loss": loss} if loss else {}  # of the last update, where it is known
        self._tell(AgentProgress(*agent.id, updates, updates, 0.0, 0.0, logged, agent.position, agent.machine.function))

    @property
    def local(self) -> bool:
        """Whether models have a tensor that stays local."""
        return self._cluster.local

    def finished(self, agent: SimAgent) -> None:
        self._leave(agent)
        self.progress(agent)
        self._tell(AgentFinished(self.name, *agent.id, b""))

    def failed(self, agent: SimAgent, error: str, traceback: str) -> None:
        self._leave(agent)
        self.progress(agent)
        self._tell(AgentFailedEvent(self.name, self.host, *agent.id, error, traceback))

    def crash(self, agent: SimAgent) -> None:
        """Its process ends by itself."""
        self._cluster.kill_process(self, agent)

    def died(self, agent: SimAgent) -> None:
        """A process was killed: the registry hears of it."""
        agent.die()
        self._leave(agent)

    def _leave(self, agent: SimAgent) -> None:
        if self.agents.get(agent.agent) is agent:
            del self.agents[agent.agent]
        if agent.id in self._unsaved:
            self._unsaved.discard(agent.id)
            self._say_saved(agent.id, self._saves[agent.id][0], "it ended first")
        self._perform(self.book.agent_gone(agent.id))

    # ---- instructions of the registry --------------------------------------------------------------------------------------

    def _perform(self, instructions: list[Any]) -> None:
        for one in instructions:
            kind = type(one)
            if kind is Interrupt:
                self.agents[one.agent].receive(SnapshotRequest(one.cycle, one.shard))
            elif kind is Answered:
                self._answer(one)
            elif kind is Back:
                self._tell(AgentBack(self.name, *one))
            elif kind is Write:
                self._slots[(one.agent, one.shard)], alpha = one.arrival
                self.agents[one.agent].receive(Install(one.shard, one.version, one.mode, alpha))
            elif kind is Drop:
                self._weights.pop(one.cycle, None)
                for key in [key for key in self.yields if key[0] == one.cycle]:
                    del self.yields[key]

    def _answer(self, one: Answered) -> None:
        """Put the executor's part into block storage, then answer. A freeze that is read again gives the same part."""
        kept = [self.yields[(one.cycle, taken.id)] for taken in one.frozen]
        finite = [(data, self._weights[one.cycle](frozen.tau)) for data, frozen in kept if frozen.finite]
        weight = sum((each for _, each in finite), 0.0)
        part = local_mean([data for data, _ in finite], [each for _, each in finite]) if finite else None
        coding, entering = self._cluster.coding, tuple(frozen.id for _, frozen in kept if frozen.finite)
        if part is not None and coding is not None and one.cycle >= 0:
            part = coding.part(self.name, one.cycle, one.shard, entering, part)
        if part is not None:
            self.blocks[one.cycle] = (weight, part)
        self._cluster.frozen(self, one.ticket, [frozen for _, frozen in kept], one.late, weight)
