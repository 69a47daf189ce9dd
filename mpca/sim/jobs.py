"""Orders in virtual time: each is a job, with a task on each of its executors, as Spark and our JVM part do it.

A job fails at its first failed task, and its other tasks end with it. A broadcast that was withdrawn cannot be downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from mpca.algorithm.averaging import weighted_sum
from mpca.driver.events import Acknowledged, ExecutorDamages, OrderDone, OrderFailed
from mpca.sim.check import Checker
from mpca.sim.coded import Coding
from mpca.sim.costs import Costs
from mpca.sim.nodes import Node
from mpca.sim.relay import PATIENCE_S, Blame, Relay
from mpca.sim.world import World
from mpca.wire.agent_ref import AgentId
from mpca.wire.orders import Answer, Download, Frozen, Late, Order, Reduce

__all__ = ["ClusterParts", "Jobs"]


class ClusterParts(Protocol):
    """What jobs use of their cluster."""

    nodes: dict[str, Node]
    misplaced: set[str]  # executors whose next task will run elsewhere
    broadcasts: dict[int, np.ndarray]
    sums: dict[int, np.ndarray]
    watch: Checker
    reach: Callable[[str, int], None]
    coding: Coding | None  # what travels is encoded

    def emit(self, event: Any) -> None:
        """The driver is to hear this event."""
        ...


@dataclass(slots=True)
class _Job:
    order: Order
    start: float
    pending: set[str]  # executors whose task has not ended
    answers: dict[str, Answer] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)  # executors whose task waited for the link when the others began
    over: bool = False
    reduced: tuple[float, float] = (0.0, 0.0)  # seconds of the driver's clock
    freezing: bool = False


class Jobs:
    """The jobs that are not over, and their downloads, which may take longer. Times are seconds of virtual time.

    Args:
        world: virtual time.
        costs: what things take.
        cluster: has the executors.
    """

    def __init__(self, world: World, costs: Costs, cluster: ClusterParts) -> None:
        self._world, self._costs, self._cluster = world, costs, cluster
        self._jobs: dict[int, _Job] = {}
        self._tickets: dict[int, _Job] = {}  # job of each freeze that is not answered
        self._ticket = 0

    def submit(self, order: Order) -> None:
        """The job's tasks begin after `Costs.dispatch_s`."""
        job = _Job(order, self._world.now, set(order.executors))
        self._jobs[order.order] = job
        self._cluster.reach("submit", order.cycle)
        self._world.after(self._costs.dispatch_s, self._run_tasks, job)

    def cancel(self, order: int, reason: str) -> None:
        """The job fails at once; the event comes after `Costs.latency_s`."""
        job = self._jobs.get(order)
        if job is not None:
            self._fail(job, None, reason)

    def lost(self, executor: str) -> None:
        """An executor is lost: after some time the jobs fail that need it."""
        for job in list(self._jobs.values()):
            if executor in job.pending or self._needs(job, executor):
                delay = self._world.random.uniform(0, self._costs.notice_s)
                self._world.after(delay, self._fail, job, executor, f"executor {executor} lost")

    def retry(self, node: Node) -> bool:
        """Spark runs the newest job's task on this executor a second time. False: it has none."""
        jobs = [job for job in self._jobs.values() if job.freezing and not job.over]
        if not jobs:
            return False
        job = jobs[-1]
        freeze = job.order.freeze
        assert freeze is not None
        agents = [who.id for who in freeze.agents if who.executor == node.name]
        if node.name not in job.order.executors or not agents:
            return False
        self._freeze_on(job, node, agents)
        return True

    def clear(self) -> None:
        """The cluster has closed."""
        self._jobs.clear()

    # ---- tasks -----------------------------------------------------------------------------------------------------------

    def _run_tasks(self, job: _Job) -> None:
        order, failed = job.order, None
        if job.over:
            return
        for name in order.executors:
            node = self._cluster.nodes.get(name)
            if node is None or name in self._cluster.misplaced:
                self._cluster.misplaced.discard(name)
                failed = failed or name
                continue
            if not node.driver.is_open:
                job.held.add(name)
            node.driver.send(node.forget, order.forget_cycle, order.forget_broadcasts)
        self._pass_on(order)
        for download in order.downloads:
            self._download(download, order.cycle)
        if failed is not None:
            self._fail(job, failed, f"WrongExecutor: the task of executor {failed} was run elsewhere")
            return
        self._cluster.reach("cut" if order.cut is not None else "started", order.cycle)
        if order.reduce is None:
            self._freeze(job)
        else:
            duration = self._costs.reduce_s(order.reduce.length // 4, len(order.executors))
            job.reduced = (self._world.now, self._world.now + duration)
            self._world.after(duration / 2, self._cluster.reach, "reducing", order.cycle)
            self._world.after(duration, self._reduce, job, order.reduce)

    def _pass_on(self, order: Order) -> None:
        if order.readers is not None:
            for who in order.readers.agents:
                self._tell(who.executor, Node.tell_readers, who.id, order.readers.version, order.readers.readers)
        if order.cut is not None:
            for who in order.cut.agents:
                self._tell(who.executor, Node.cut, who.id, order.cut.shards)
        for who in order.begin:
            self._tell(who.executor, Node.begin, who.id)
        if order.save is not None:
            for who, url in zip(order.save.agents, order.save.urls, strict=True):
                self._tell(who.executor, Node.save, who.id, order.save.number, url)
        for stop in order.stop:
            self._tell(stop.executor, Node.stop, stop.id, stop.reason)

    def _tell(self, executor: str, what: Callable[..., None], *arguments: Any) -> None:
        node = self._cluster.nodes.get(executor)
        if node is not None:
            node.driver.send(what, node, *arguments)

    def _stuck(self, order: Order) -> tuple[str, float] | None:
        """For whom a sum waits whose bytes do not pass, and until when."""
        nodes = {name: self._cluster.nodes[name] for name in order.executors if name in self._cluster.nodes}
        for name, node in nodes.items():
            if not node.driver.is_open:
                return name, node.driver.opens_at
        for name, node in nodes.items() if len(nodes) > 1 else ():
            if not node.peers.is_open:
                # the task that throws first tells whom it waited for: the others for this one, and this one for another
                thrower = self._world.random.choice(order.executors)
                other = next(one for one in order.executors if one != name)
                return other if thrower == name else name, node.peers.opens_at
        return None

    def _reduce(self, job: _Job, reduce: Reduce) -> None:
        if job.over:
            return
        stuck, now = self._stuck(job.order), self._world.now
        if stuck is not None:
            left = max(0.0, job.order.deadline - self._world.clock.now())
            if stuck[1] - now <= left:
                self._world.after(stuck[1] - now, self._reduce, job, reduce)
            else:
                why = f"deadline passed while summing, waiting for executor {stuck[0]}"
                self._world.after(left, self._fail, job, stuck[0], why)
            return
        parts, weights = [], []
        for part in reduce.parts:
            node = self._cluster.nodes.get(part.executor)
            block = None if node is None else node.blocks.get(reduce.cycle)
            if node is None or block is None:
                self._fail(job, part.executor, f"no block of cycle {reduce.cycle} on executor {part.executor}")
                return
            if not node.sends():
                self._fail(job, part.executor, f"executor {part.executor} damages bytes: its part of {reduce.cycle}", True)
                return
            parts.append(block[1])
            weights.append(part.weight)
        coding = self._cluster.coding
        if coding is not None and reduce.cycle >= 0:
            self._cluster.sums[job.order.order] = coding.total(job.order.order, reduce, parts, job.order.executors)
        else:
            self._cluster.sums[job.order.order] = self._sum(parts, weights)
        self._cluster.reach("reduced", job.order.cycle)
        if not job.over:
            self._freeze(job)

    @staticmethod
    def _sum(parts: list[np.ndarray], weights: list[float]) -> np.ndarray:
        total = weighted_sum(parts, weights)
        assert total is not None, "an order whose weights are all zero"
        return total

    def _freeze(self, job: _Job) -> None:
        order = job.order
        if order.freeze is None:
            for name in order.executors:
                self._answer(job, name, [], {}, 0.0)
            return
        job.freezing = True
        by_node: dict[str, list[AgentId]] = {name: [] for name in order.executors}
        for who in order.freeze.agents:
            by_node.setdefault(who.executor, []).append(who.id)
        self._world.after(self._costs.copy_s, self._cluster.reach, "freezing", order.cycle)
        for name in order.executors:
            node = self._cluster.nodes.get(name)
            if node is not None and not job.over and name in job.held:
                node.driver.send(self._freeze_until, job, node, by_node[name])
            elif node is not None and not job.over:
                self._freeze_until(job, node, by_node[name])

    def _freeze_until(self, job: _Job, node: Node, agents: list[AgentId]) -> None:
        if not node.alive:
            return
        wait = node.clock.here(job.order.deadline) - node.clock.now()
        self._world.after(max(0.0, wait), self._deadline, job, node.name)
        self._freeze_on(job, node, agents)

    def _freeze_on(self, job: _Job, node: Node, agents: list[AgentId]) -> None:
        freeze = job.order.freeze
        assert freeze is not None
        self._ticket += 1
        self._tickets[self._ticket] = job
        node.freeze(self._ticket, freeze, agents)

    def _deadline(self, job: _Job, name: str) -> None:
        freeze = job.order.freeze
        if not job.over and freeze is not None and name in job.pending and name in self._cluster.nodes:
            self._cluster.nodes[name].deadline(freeze.cycle)

    def frozen(self, node: Node, ticket: int, frozen: list[Frozen], late: dict[int, Late], weight: float) -> None:
        """A node answers a freeze.

        Args:
            node: which one.
            ticket: the number that `Node.freeze` was given.
            frozen: snapshots that it holds.
            late: agents without one, and why.
            weight: of its part: the sum of tau.
        """
        job = self._tickets.pop(ticket)
        self._cluster.watch.answered(node.name, job.order, frozen, weight)
        if not job.over and node.name in job.pending:
            self._answer(job, node.name, frozen, late, weight)

    def _answer(self, job: _Job, name: str, frozen: list[Frozen], late: dict[int, Late], weight: float) -> None:
        node = self._cluster.nodes.get(name)
        if node is None:
            self._answered(job, name, frozen, late, weight)
        else:
            node.driver.send(self._answered, job, name, frozen, late, weight)

    def _answered(self, job: _Job, name: str, frozen: list[Frozen], late: dict[int, Late], weight: float) -> None:
        if job.over or name not in job.pending:
            return
        job.pending.discard(name)
        length = 0 if job.order.reduce is None else job.order.reduce.length
        job.answers[name] = Answer(name, f"host-{name}", frozen, late, weight, *job.reduced, length, length // 4)
        if job.pending:
            return
        self._cluster.reach("frozen", job.order.cycle)
        if not job.over:
            job.over = True
            self._world.after(self._costs.latency_s, self._done, job)

    def _done(self, job: _Job) -> None:
        order = self._jobs.pop(job.order.order).order
        answers = [job.answers[name] for name in order.executors]
        length = 0 if order.reduce is None else order.reduce.length
        self._cluster.emit(OrderDone(order.order, answers, job.start, self._world.now, length))

    def _fail(self, job: _Job, executor: str | None, reason: str, damages: bool = False) -> None:
        if job.over:
            return
        job.over = True
        unfinished = [name for name in job.order.executors if name in job.pending]
        self._jobs.pop(job.order.order, None)
        self._cluster.sums.pop(job.order.order, None)
        event = OrderFailed(job.order.order, executor, reason, unfinished, damages)
        self._world.after(self._costs.latency_s, self._cluster.emit, event)

    @staticmethod
    def _needs(job: _Job, name: str) -> bool:
        """Whether a sum that is not made yet has a part on that executor."""
        reduce = job.order.reduce
        return reduce is not None and not job.answers and any(part.executor == name for part in reduce.parts)

    # ---- downloads -----------------------------------------------------------------------------------------------------

    def _download(self, one: Download, cycle: int) -> None:
        by_node: dict[str, list[AgentId]] = {}
        for who in one.agents:
            by_node.setdefault(who.executor, []).append(who.id)
        base = self._costs.download_s(one.length // 4)
        nodes = [self._cluster.nodes[name] for name in by_node if name in self._cluster.nodes]
        if len(by_node) > 1 and not all(node.peers.is_open for node in nodes):
            base += PATIENCE_S  # then the driver sends what the others do not
        start = self._world.now
        self._relay(list(by_node))
        first = True
        for name, agents in by_node.items():
            duration = base * self._world.random.uniform(1.0, self._costs.slowest)
            self._world.after(duration, self._downloaded, one, name, agents, start, first)
            first = False
        self._world.after(base / 2, self._cluster.reach, "downloading", cycle)

    def _relay(self, names: list[str]) -> None:
        """Executors push pieces to each other. For each owner only the push to the next one is played."""
        for owner, name in enumerate(names if len(names) > 1 else ()):
            node = self._cluster.nodes.get(name)
            if node is None or node.sends():
                continue
            relay = Relay(len(names), (owner + 1) % len(names), 2 * len(names))
            relay.begin(self._world.now)
            relay.damaged(owner)
            for one in relay.failed(owner, True, "a piece of a broadcast"):
                if isinstance(one, Blame):
                    culprit = names[one.owner]
                    self._cluster.emit(ExecutorDamages(culprit, f"executor {culprit} damages bytes: {one.why}"))

    def _downloaded(self, one: Download, name: str, agents: list[AgentId], start: float, first: bool) -> None:
        node, data = self._cluster.nodes.get(name), self._cluster.broadcasts.get(one.broadcast)
        if node is not None and not node.driver.is_open:
            node.driver.send(self._downloaded, one, name, agents, start, first)
            return
        if node is None or data is None:
            return  # the executor is lost, or the broadcast withdrawn: no acknowledgement comes
        node.broadcasts.add(one.broadcast)
        if self._cluster.coding is not None and self._cluster.coding.sent(one.broadcast):
            self._cluster.coding.downloaded(name, one)
        bytes_in = one.length
        for who in agents:
            if not node.offer(who, one.shard, one.version, one.mode, data, one.alpha):
                continue
            from_driver = one.length if first else 0
            self._cluster.emit(Acknowledged(one.broadcast, name, *who, start, self._world.now, bytes_in, from_driver))
            bytes_in = 0
