"""A cluster in virtual time: the port `driver.cluster.Cluster` over simulated executors, links and jobs.

It behaves as Spark and our JVM part do. A job fails at its first failed task, and its other tasks end with it. A lost executor
takes its agents along without a word from them, and may be replaced. A task may run twice. A holding job may end while the
agent lives. A broadcast that was withdrawn cannot be downloaded. Methods make faults happen (`kill_agent`, ...), and each
answers whether the fault could happen. `reach` is called at each point of the work. Times are seconds of virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpca.algorithm.averaging import weighted_sum
from mpca.driver.cluster import AgentSpec
from mpca.driver.events import (
    Acknowledged,
    AgentBack,
    AgentDied,
    AgentFinished,
    AgentHello,
    AgentsFound,
    ExecutorDamages,
    ExecutorLost,
    ExecutorReady,
    HoldEnded,
    OrderDone,
    OrderFailed,
)
from mpca.methods.base import Method
from mpca.sim.agents import LOCAL_BYTES, Behind, SimAgent
from mpca.sim.check import Checker
from mpca.sim.clocks import NodeClock
from mpca.sim.costs import Costs
from mpca.sim.nodes import Node
from mpca.sim.relay import Blame, Relay
from mpca.sim.trainers import SimTrainer
from mpca.sim.world import World
from mpca.wire.agent_ref import AgentId, AgentRef
from mpca.wire.messages import Hello
from mpca.wire.orders import Answer, Download, Frozen, Late, Order, Reduce

__all__ = ["SimCluster"]

SIGKILL = 137  # 128 + 9, as Java says it
CORES = 2  # for each agent that an executor may have


@dataclass(slots=True)
class _Job:
    order: Order
    start: float
    pending: set[str]  # executors whose task has not ended
    answers: dict[str, Answer] = field(default_factory=dict)
    over: bool = False
    reduced: tuple[float, float] = (0.0, 0.0)  # seconds of the driver's clock
    freezing: bool = False


class SimCluster:
    """See the module's text; `driver.cluster.Cluster` documents the port.

    Args:
        world: virtual time.
        costs: what things take.
        method: of the run.
        bounds: shard edges in elements.
        parameters: how many elements are parameters; the rest are buffers.
        agents: of the run.
        per_executor: agents that one executor may have.
        make_trainer: makes the trainer of (agent, incarnation).
        watch: checks what happens.
    """

    def __init__(
        self,
        world: World,
        costs: Costs,
        method: Method,
        bounds: list[int],
        parameters: int,
        agents: int,
        per_executor: int,
        make_trainer: Callable[[int, int], SimTrainer],
        watch: Checker,
    ) -> None:
        self.nodes: dict[str, Node] = {}
        self.watch = watch
        self.skew_s = 0.0  # wall clocks of executors are wrong by so many seconds, every other one ahead
        self.reach: Callable[[str, int], None] = lambda point, cycle: None
        self._refused: set[int] = set()  # agents whose next holding job fails before it starts a process
        self.misplaced: set[str] = set()  # executors whose next task will run elsewhere
        self.behind: dict[int, Behind] = {}  # by agent: what its train function does behind its loop
        self.local = False  # models have a tensor that stays local
        self.echo_s = 0.0  # messages of agents that died arrive once more after so many seconds; 0: they do not
        self.events: list[Any] = []
        self.broadcasts: dict[int, np.ndarray] = {}
        self.sums: dict[int, np.ndarray] = {}
        self._world, self._costs, self._method = world, costs, method
        self._bounds, self._parameters = bounds, parameters
        self._agents, self._per_executor = agents, per_executor
        self._make_trainer = make_trainer
        self._jobs: dict[int, _Job] = {}
        self._tickets: dict[int, _Job] = {}
        self._serial = {"executor": 0, "pid": 1000, "broadcast": 0, "ticket": 0}
        self._closed = False

    def _next(self, name: str) -> int:
        self._serial[name] += 1
        return self._serial[name]

    # ---- the port ------------------------------------------------------------------------------------------------------

    def start_agent(self, who: AgentRef, spec: AgentSpec) -> None:
        """As `Cluster.start_agent`, after `Costs.dispatch_s`; `spec` is not looked at."""
        self.watch.started(who)
        self._world.after(self._costs.dispatch_s, self._hold, who)

    def submit(self, order: Order) -> None:
        """As `Cluster.submit`: the job's tasks begin after `Costs.dispatch_s`."""
        self.watch.ordered(order)
        job = _Job(order, self._world.now, set(order.executors))
        self._jobs[order.order] = job
        self.reach("submit", order.cycle)
        self._world.after(self._costs.dispatch_s, self._run_tasks, job)

    def cancel(self, order: int, reason: str) -> None:
        """As `Cluster.cancel`: the job fails at once, and the event comes after `Costs.latency_s`."""
        job = self._jobs.get(order)
        if job is not None:
            self._fail(job, None, reason)

    def take_sum(self, order: int, length: int) -> np.ndarray:
        taken = self.sums.pop(order)
        assert taken.nbytes == length, (taken.nbytes, length)
        return taken

    def publish(self, vector: np.ndarray) -> int:
        number = self._next("broadcast")
        self.broadcasts[number] = vector.copy()
        return number

    def withdraw(self, broadcast: int) -> None:
        """As `Cluster.withdraw`: a download that has not ended by now never ends."""
        self.broadcasts.pop(broadcast, None)

    def rediscover(self, executors: list[str]) -> None:
        """As `Cluster.rediscover`: the answers come after twice `Costs.latency_s`."""
        self._world.after(self._costs.latency_s * 2, lambda: self._find_living(executors))

    def poll(self, timeout_s: float) -> list[Any]:
        """As `Cluster.poll`: lets virtual time pass, at most `timeout_s` seconds."""
        self._world.run(self._world.now + timeout_s, self.events)
        events, self.events = self.events, []
        self.watch.events(events)
        return events

    def close(self) -> None:
        self._closed = True
        for node in self.nodes.values():
            for agent in list(node.agents.values()):
                agent.die()
            node.alive = False
        self.nodes.clear()
        self.broadcasts.clear()
        self.sums.clear()
        self._jobs.clear()

    # ---- executors and processes -------------------------------------------------------------------------------------------

    def add_executor(self) -> None:
        """A new executor has come, with room for `per_executor` agents."""
        number = self._next("executor")
        name = f"e{number}"
        clock = NodeClock(self._world, 1000.0 * number, self.skew_s if number % 2 else -self.skew_s)
        self.nodes[name] = Node(name, f"host-{name}", self, clock)
        self.emit(ExecutorReady(name, f"host-{name}", CORES * self._per_executor))

    def _hold(self, who: AgentRef) -> None:
        """The holding job's task begins: start the process, or take hold of the living one."""
        node, agent = self.nodes.get(who.executor), who.agent
        if node is None or self._closed or agent in self._refused:
            self._refused.discard(agent)
            self.emit(HoldEnded(*who.id, f"executor {who.executor} is gone"))
            return
        there = node.agents.get(agent)
        if there is not None and there.id == who.id:
            self.watch.held_again(there)
            return
        if there is not None:
            self.kill_process(node, there)  # the registry allows one incarnation of an agent
        trainer = self._make_trainer(*who.id)
        step_s = self._costs.step_of(agent, self._agents)
        pid, method = self._next("pid"), self._method
        process = SimAgent(self._world, node, who.id, pid, method, trainer, step_s, self._costs.copy_s)
        node.agents[agent] = process
        process.behind = self.behind.get(agent, process.behind)
        self.watch.process(process)
        self._world.after(self._costs.boot_s * self._world.random.uniform(0.8, 1.2), process.boot)

    def hello(self, node: Node, agent: SimAgent) -> None:
        """An agent on this node says hello: the driver hears it."""
        bounds, parameters = self._bounds, self._parameters
        layout = [["weight", [parameters], "parameter", 0], ["buffer", [bounds[-1] - parameters], "buffer", parameters]]
        local = {"counted": ["int32", [], LOCAL_BYTES]} if self.local else {}
        edges = [*bounds, bounds[-1] + LOCAL_BYTES // 2] if self.local else bounds
        hello = Hello(
            **agent.id._asdict(), pid=agent.pid, python="3", torch="none", mpca="sim",
            x0_hash="x0", layout=layout, local=local, tied={}, bounds=edges, parameters=parameters, segment_fd=0,
            segment_bytes=0, slots=[],
        )  # fmt: skip
        self.emit(AgentHello(node.name, node.host, hello))

    def emit(self, event: Any) -> None:
        """Let the driver hear an event at its next `poll`; nothing after `close`."""
        if not self._closed:
            self.events.append(event)

    def _find_living(self, executors: list[str]) -> None:
        for name in executors:
            if name in self.nodes:
                self.emit(AgentsFound(name, self.nodes[name].living()))

    # ---- jobs ----------------------------------------------------------------------------------------------------------

    def _run_tasks(self, job: _Job) -> None:
        order, failed = job.order, None
        if job.over:
            return
        for name in order.executors:
            node = self.nodes.get(name)
            if node is None or name in self.misplaced:
                self.misplaced.discard(name)
                failed = failed or name
                continue
            node.forget(order.forget_cycle, order.forget_broadcasts)
        members = order.members
        for who in members.agents if members is not None else ():
            if who.executor in self.nodes and members is not None:
                self.nodes[who.executor].tell_members(who.id, members.version, members.members)
        for who in order.begin:
            if who.executor in self.nodes:
                self.nodes[who.executor].begin(who.id)
        for stop in order.stop:
            if stop.executor in self.nodes:
                self.nodes[stop.executor].stop(stop.id, stop.reason)
        for download in order.downloads:
            self._download(download, order.cycle)
        if failed is not None:
            self._fail(job, failed, f"WrongExecutor: the task of executor {failed} was run elsewhere")
            return
        self.reach("started", order.cycle)
        if order.reduce is None:
            self._freeze(job)
        else:
            duration = self._costs.reduce_s(order.reduce.length // 4, len(order.executors))
            job.reduced = (self._world.now, self._world.now + duration)
            self._world.after(duration / 2, self.reach, "reducing", order.cycle)
            self._world.after(duration, self._reduce, job, order.reduce)

    def _reduce(self, job: _Job, reduce: Reduce) -> None:
        if job.over:
            return
        parts, weights = [], []
        for part in reduce.parts:
            node = self.nodes.get(part.executor)
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
        self.sums[job.order.order] = total
        self.reach("reduced", job.order.cycle)
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
        self._world.after(self._costs.copy_s, self.reach, "freezing", order.cycle)
        for name in order.executors:
            node = self.nodes.get(name)
            if node is not None and not job.over:
                wait = node.clock.here(order.deadline) - node.clock.now()
                self._world.after(max(0.0, wait), self._deadline, job, name)
                self._freeze_on(job, node, by_node[name])

    def _freeze_on(self, job: _Job, node: Node, agents: list[AgentId]) -> None:
        freeze = job.order.freeze
        assert freeze is not None
        ticket = self._next("ticket")
        self._tickets[ticket] = job
        node.freeze(ticket, freeze.cycle, freeze.shard, agents)

    def _deadline(self, job: _Job, name: str) -> None:
        freeze = job.order.freeze
        if not job.over and freeze is not None and name in job.pending and name in self.nodes:
            self.nodes[name].deadline(freeze.cycle)

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
        self.watch.answered(node.name, job.order, frozen, weight)
        if not job.over and node.name in job.pending:
            self._answer(job, node.name, frozen, late, weight)

    def _answer(self, job: _Job, name: str, frozen: list[Frozen], late: dict[int, Late], weight: float) -> None:
        job.pending.discard(name)
        length = 0 if job.order.reduce is None else job.order.reduce.length
        job.answers[name] = Answer(name, f"host-{name}", frozen, late, weight, *job.reduced, length, length // 4)
        if job.pending:
            return
        self.reach("frozen", job.order.cycle)
        if not job.over:
            job.over = True
            self._world.after(self._costs.latency_s, self._done, job)

    def _done(self, job: _Job) -> None:
        order = self._jobs.pop(job.order.order).order
        answers = [job.answers[name] for name in order.executors]
        length = 0 if order.reduce is None else order.reduce.length
        self.emit(OrderDone(order.order, answers, job.start, self._world.now, length))

    def _fail(self, job: _Job, executor: str | None, reason: str, damages: bool = False) -> None:
        if job.over:
            return
        job.over = True
        unfinished = [name for name in job.order.executors if name in job.pending]
        self._jobs.pop(job.order.order, None)
        self.sums.pop(job.order.order, None)
        event = OrderFailed(job.order.order, executor, reason, unfinished, damages)
        self._world.after(self._costs.latency_s, self.emit, event)

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
        self._world.after(base / 2, self.reach, "downloading", cycle)

    def _relay(self, names: list[str]) -> None:
        """Executors fetch pieces from each other. For each owner only the fetch by the next one is played."""
        for owner, name in enumerate(names if len(names) > 1 else ()):
            node = self.nodes.get(name)
            if node is None or node.sends():
                continue
            relay = Relay(len(names), (owner + 1) % len(names), 2 * len(names))
            relay.begin(self._world.now)
            relay.announced(owner, 0)
            relay.damaged(owner)
            for one in relay.failed(owner, True, "a piece of a broadcast"):
                if isinstance(one, Blame):
                    culprit = names[one.owner]
                    self.emit(ExecutorDamages(culprit, f"executor {culprit} damages bytes: {one.why}"))

    def _downloaded(self, one: Download, name: str, agents: list[AgentId], start: float, first: bool) -> None:
        node, data = self.nodes.get(name), self.broadcasts.get(one.broadcast)
        if node is None or data is None:
            return  # the executor is lost, or the broadcast withdrawn: no acknowledgement comes
        node.broadcasts.add(one.broadcast)
        bytes_in = one.length
        for who in agents:
            if not node.offer(who, one.shard, one.version, one.mode, data, one.alpha):
                continue
            from_driver = one.length if first else 0
            self.emit(Acknowledged(one.broadcast, name, *who, start, self._world.now, bytes_in, from_driver))
            bytes_in = 0

    # ---- faults --------------------------------------------------------------------------------------------------------

    def process(self, agent: int) -> tuple[Node, SimAgent] | None:
        """The newest living process of an agent, and where it runs; None: there is none."""
        found = [(node, node.agents[agent]) for node in self.nodes.values() if agent in node.agents]
        return max(found, key=lambda pair: pair[1].id, default=None)

    def kill_agent(self, agent: int) -> bool:
        """SIGKILL for its process."""
        found = self.process(agent)
        if found is None:
            return False
        self.kill_process(*found)
        return True

    def kill_process(self, node: Node, one: SimAgent) -> None:
        """Kill this process: AgentDied follows.

        Args:
            node: where it runs.
            one: the process.
        """
        node.died(one)
        event = AgentDied(node.name, *one.id, one.pid, SIGKILL, "")
        self._world.after(self._costs.latency_s, self.emit, event)
        self._echo(event)
        self._echo(AgentBack(node.name, *one.id))
        self._echo(AgentFinished(node.name, *one.id, b""))

    def kill_executor(self, agent: int, replace: bool = True) -> bool:
        """The whole executor of an agent is lost; ExecutorLost follows.

        Args:
            agent: on that executor.
            replace: whether a new executor comes after `Costs.respawn_s`.
        """
        found = self.process(agent)
        if found is None:
            return False
        node = found[0]
        node.alive = False
        del self.nodes[node.name]
        for one in node.agents.values():
            one.die()
            self._after_notice(HoldEnded(*one.id, f"executor {node.name} lost"))
            self._echo(AgentDied(node.name, *one.id, one.pid, SIGKILL, ""))
        for job in list(self._jobs.values()):
            if node.name in job.pending or self._needs(job, node.name):
                delay = self._world.random.uniform(0, self._costs.notice_s)
                self._world.after(delay, self._fail, job, node.name, f"executor {node.name} lost")
        self._after_notice(ExecutorLost(node.name, "exited with code 137"))
        if replace:
            self._world.after(self._costs.respawn_s, self._respawn)
        return True

    @staticmethod
    def _needs(job: _Job, name: str) -> bool:
        """Whether a sum that is not made yet has a part on that executor."""
        reduce = job.order.reduce
        return reduce is not None and not job.answers and any(part.executor == name for part in reduce.parts)

    def _respawn(self) -> None:
        if not self._closed:
            self.add_executor()

    def _after_notice(self, event: Any) -> None:
        self._world.after(self._world.random.uniform(0, self._costs.notice_s), self.emit, event)

    def _echo(self, event: Any) -> None:
        """The last words of an incarnation reach the driver once more, when there is a newer one."""
        if self.echo_s:
            self._world.after(self.echo_s, self.emit, event)

    def stop_agent(self, agent: int, for_s: float = 0.0) -> bool:
        """SIGSTOP, and SIGCONT after `for_s` seconds; 0: until `continue_agent`."""
        found = self.process(agent)
        if found is None or found[1].stopped:
            return False
        found[1].stop_process()
        if for_s:
            self._world.after(for_s, self._continue, found[1])
        return True

    @staticmethod
    def _continue(agent: SimAgent) -> None:
        if agent.alive and agent.stopped:
            agent.continue_process()

    def continue_agent(self, agent: int) -> bool:
        """SIGCONT for its process."""
        found = self.process(agent)
        if found is None or not found[1].stopped:
            return False
        found[1].continue_process()
        return True

    def non_finite(self, agent: int) -> bool:
        """The agent's parameters are not finite from now on, until the joint model replaces them."""
        found = self.process(agent)
        if found is None:
            return False
        found[1].non_finite = True
        return True

    def skew_executor(self, agent: int, by_s: float) -> bool:
        """Somebody sets the wall clock of that agent's machine forward by `by_s` seconds."""
        found = self.process(agent)
        if found is None:
            return False
        found[0].clock.ahead_s += by_s
        return True

    def damage(self, agent: int, times: int) -> bool:
        """The next `times` transfers from that agent's executor arrive with a wrong checksum."""
        found = self.process(agent)
        if found is None:
            return False
        found[0].damages += times
        return True

    def end_hold(self, agent: int) -> bool:
        """A holding job ends; process and executor live on."""
        found = self.process(agent)
        if found is None or not found[1].held:
            return False
        found[1].held = False
        self.emit(HoldEnded(*found[1].id, "the holding job was cancelled"))
        return True

    def refuse_start(self, agent: int) -> bool:
        """The next holding job of the agent ends before it has started a process."""
        self._refused.add(agent)
        return True

    def retry_task(self, agent: int) -> bool:
        """Spark runs the task of that agent's executor a second time."""
        found = self.process(agent)
        jobs = [job for job in self._jobs.values() if job.freezing and not job.over]
        if found is None or not jobs:
            return False
        job, node = jobs[-1], found[0]
        freeze = job.order.freeze
        assert freeze is not None
        agents = [who.id for who in freeze.agents if who.executor == node.name]
        if node.name not in job.order.executors or not agents:
            return False
        self._freeze_on(job, node, agents)
        return True

    def misplace(self, agent: int) -> bool:
        """Spark runs the next task of that agent's executor on another one."""
        found = self.process(agent)
        if found is None:
            return False
        self.misplaced.add(found[0].name)
        return True
