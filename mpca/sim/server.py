"""Exchanges that agents ask for, in virtual time: in turn over the driver's link, and answers back, as our JVM part does it.

A question takes `Costs.latency_s` to the driver and waits for its turn. What the agent sent comes over the driver's incoming
link, one at a time; the next one when the driver has answered. Answers share the driver's outgoing link. Damaged bytes are
fetched once more; damaged twice, the executor asks again after `AGAIN_S`. What a process that died had sent is forgotten, if
the driver does not have it yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from zlib import crc32

import numpy as np

from mpca.agent.events import Ask
from mpca.driver.events import ExchangeArrived, ExecutorDamages
from mpca.sim.agents import SimAgent
from mpca.sim.check import Checker
from mpca.sim.costs import Costs
from mpca.sim.nodes import Node
from mpca.sim.world import World
from mpca.wire.agent_ref import AgentId

__all__ = ["AGAIN_S", "ExchangeServer", "ServerParts"]

AGAIN_S = 1.0


class ServerParts(Protocol):
    """What the server uses of its cluster."""

    watch: Checker
    reach: Callable[[str, int], None]

    def emit(self, event: Any) -> None:
        """The driver is to hear this event."""
        ...


@dataclass(slots=True, eq=False)
class _Question:
    node: Node
    process: SimAgent
    one: Ask
    data: np.ndarray
    start: float  # seconds of the driver's clock
    asked: float = 0.0

    def arrived(self, now: float) -> ExchangeArrived:
        one, data = self.one, self.data
        finite = bool(np.isfinite(data).all())
        said = (*self.process.id, *one[:1], one.shard, one.updates, one.version, data.nbytes, crc32(data.data), finite)
        return ExchangeArrived(self.node.name, *said, self.start, self.asked, now)


class ExchangeServer:
    """See the module's text.

    Args:
        world: virtual time.
        costs: what things take.
        cluster: hears what happens.
    """

    def __init__(self, world: World, costs: Costs, cluster: ServerParts) -> None:
        self._world, self._costs, self._cluster = world, costs, cluster
        self.sent: dict[tuple[AgentId, int], np.ndarray] = {}  # fetched and not taken
        self._waiting: deque[_Question] = deque()
        self._current: _Question | None = None  # on its way to the driver, or not answered yet
        self._newest: dict[AgentId, _Question] = {}
        self._fetched = 0  # questions that had their turn
        self._out_free = 0.0  # when the driver's outgoing link is free

    def ask(self, node: Node, process: SimAgent, one: Ask, data: np.ndarray, start: float) -> None:
        """A process on this node asks, and waits."""
        question = _Question(node, process, one, data, start)
        self._newest[process.id] = question
        node.driver.send(self._world.after, self._costs.latency_s, self._asked, question)

    def last_words(self, who: AgentId) -> ExchangeArrived | None:
        """The newest exchange of a process, as the driver may hear of it once more."""
        question = self._newest.get(who)
        return None if question is None else question.arrived(self._world.now)

    def take(self, who: AgentId, number: int, length: int) -> np.ndarray:
        """As `Cluster.take_sent`."""
        taken = self.sent.pop((who, number))
        assert taken.nbytes == length, (taken.nbytes, length)
        return taken

    def answer(self, who: AgentId, number: int, vector: np.ndarray, version: int, mode: str, share: float) -> None:
        """As `Cluster.answer`. Nothing happens if nobody waits for it."""
        self.sent.pop((who, number), None)
        question = self._current
        if question is None or question.process.id != who or question.one.number != number:
            return
        self._current = None
        self._out_free = max(self._world.now, self._out_free) + self._costs.answer_s(vector.size)
        delay = self._out_free - self._world.now + self._costs.latency_s
        self._world.after(delay / 2, self._cluster.reach, "answering", self._fetched)
        self._world.after(delay, self._answered, question, vector.copy(), version, mode, share)
        self._next()

    def clear(self) -> None:
        """The cluster has closed."""
        self.sent.clear()
        self._waiting.clear()
        self._current = None

    def _asked(self, question: _Question) -> None:
        question.asked = self._world.clock.now()
        self._waiting.append(question)
        self._next()

    def _next(self) -> None:
        while self._current is None and self._waiting:
            question = self._waiting.popleft()
            if not question.process.alive:
                continue
            self._current = question
            self._fetched += 1
            self._cluster.reach("asked", self._fetched)
            duration = self._costs.send_s(question.data.size)
            self._world.after(duration / 2, self._cluster.reach, "sending", self._fetched)
            self._world.after(duration, self._arrived, question)

    def _arrived(self, question: _Question) -> None:
        if question is not self._current:
            return
        node, process = question.node, question.process
        if not node.driver.is_open:
            node.driver.send(self._arrived, question)
            return
        whole = node.alive and process.alive and node.sends()
        if whole:
            self.sent[(process.id, question.one.number)] = question.data
            self._cluster.emit(question.arrived(self._world.clock.now()))
            self._cluster.reach("arrived", self._fetched)
            return
        self._current = None
        if process.alive:
            self._cluster.emit(ExecutorDamages(node.name, f"executor {node.name} damages bytes: what its agent sent"))
            self._world.after(AGAIN_S, self._asked, question)
        self._next()

    def _answered(self, question: _Question, data: np.ndarray, version: int, mode: str, share: float) -> None:
        process, one, link = question.process, question.one, question.node.driver
        if not link.is_open:
            link.send(self._answered, question, data, version, mode, share)
        elif question.node.alive and process.alive:
            self._cluster.watch.server.answered(process.id, one.number, data, version, mode)
            question.node.answer(process.id, one.shard, version, mode, data, share)
