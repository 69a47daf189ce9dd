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
from mpca.sim.costs import Costs
from mpca.sim.nodes import Node
from mpca.sim.relay import Blame, Relay
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

    def emit(self, event: Any) -> None:
        """The driver is to hear this event."""
        ...


@dataclass(slots=True)
class _Job:
    order: Order
    start: float
    pending: set[str]  # executors whose task has not ended
    answers: dict[str, Answer] = field(default_factory=dict)
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
            node.forget(order.forget_cycle, order.forget_broadcasts)
        readers = order.readers
        for who in readers.agents if readers is not None else ():
            if who.executor in self._cluster.nodes and readers is not None:
                self._cluster.nodes[who.executor].tell_readers(who.id, readers.version, readers.readers)
        for who in order.cut.agents if order.cut is not None else ():
            if who.executor in self._cluster.nodes and order.cut is not None:
                self._cluster.nodes[who.executor].cut(who.id, order.cut.shards)
        for who in order.begin:
            if who.executor in self._cluster.nodes:
                self._cluster.nodes[who.executor].begin(who.id)
        for who, url in zip(order.save.agents, order.save.urls, strict=True) if order.save is not None else ():
            if who.executor in self._cluster.nodes and order.save is not None:
                self._cluster.nodes[who.executor].save(who.id, order.save.number, url)
        for stop in order.stop:
            if stop.executor in self._cluster.nodes:
                self._cluster.nodes[stop.executor].stop(stop.id, stop.reason)
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

    def _reduce(self, job: _Job, reduce: Reduce) -> None:
        if job.over:
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
        total = weighted_sum(parts, weights)
        assert total is not None, "an order whose weights are all zero"
        self._cluster.sums[job.order.order] = total
        self._cluster.reach("reduced", job.order.cycle)
        if not job.over:
            self._freeze(job)

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
            if node is not None and not job.over:
                wait = node.clock.here(order.deadline) - node.clock.now()
                self._world.after(max(0.0, wait), self._deadline, job, name)
                self._freeze_on(job, node, by_node[name])

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
        start = self._world.now
        self._relay(list(by_node))
        first = True
        for name, agents in by_node.items():
            duration = base * self._world.random.uniform(1.0, self._costs.slowest)
            self._world.after(duration, self._downloaded, one, name, agents, start, first)
            first = False
        self._world.after(base / 2, self._cluster.reach, "downloading", cycle)

    def _relay(self, names: list[str]) -> None:
        """Executors fetch pieces from each other. For each owner only the fetch by the next one is played."""
        for owner, name in enumerate(names if len(names) > 1 else ()):
            node = self._cluster.nodes.get(name)
            if node is None or node.sends():
                continue
            relay = Relay(len(names), (owner + 1) % len(names), 2 * len(names))
            relay.begin(self._world.now)
            relay.announced(owner, 0)
            relay.damaged(owner)
            for one in relay.failed(owner, True, "a piece of a broadcast"):
                if isinstance(one, Blame):
                    culprit = names[one.owner]
                    self._cluster.emit(ExecutorDamages(culprit, f"executor {culprit} damages bytes: {one.why}"))

    def _downloaded(self, one: Download, name: str, agents: list[AgentId], start: float, first: bool) -> None:
        node, data = self._cluster.nodes.get(name), self._cluster.broadcasts.get(one.broadcast)
        if node is None or data is None:
            return  # the executor is lost, or the broadcast withdrawn: no acknowledgement comes
        node.broadcasts.add(one.broadcast)
        bytes_in = one.length
        for who in agents:
            if not node.offer(who, one.shard, one.version, one.mode, data, one.alpha):
                continue
            from_driver = one.length if first else 0
            self._cluster.emit(Acknowledged(one.broadcast, name, *who, start, self._world.now, bytes_in, from_driver))
            bytes_in = 0
