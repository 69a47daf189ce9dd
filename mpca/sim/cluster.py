"""A cluster in virtual time: the port `driver.cluster.Cluster` over simulated executors, links and jobs.

It behaves as Spark and our JVM part do; `jobs` carries orders out. A lost executor takes its agents along without a word from
them, and may be replaced. A holding job may end while the agent lives. Methods make faults happen (`kill_agent`, ...), and each
answers whether the fault could happen. `reach` is called at each point of the work. Times are seconds of virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpca.agent.events import Ask
from mpca.driver.cluster import AgentSpec, Outgoing
from mpca.driver.events import (
    AgentBack,
    AgentDied,
    AgentFinished,
    AgentHello,
    AgentsFound,
    ExecutorLost,
    ExecutorReady,
    HoldEnded,
)
from mpca.methods.base import Method
from mpca.sim.agents import LOCAL_BYTES, Behind, SimAgent
from mpca.sim.check import Checker
from mpca.sim.clocks import NodeClock
from mpca.sim.coded import Coding
from mpca.sim.costs import Costs
from mpca.sim.jobs import Jobs
from mpca.sim.links import Link
from mpca.sim.nodes import Node
from mpca.sim.server import ExchangeServer
from mpca.sim.trainers import SimTrainer
from mpca.sim.world import World
from mpca.wire.agent_ref import AgentId, AgentRef
from mpca.wire.messages import Hello
from mpca.wire.orders import Frozen, Late, Order

__all__ = ["SimCluster"]

SIGKILL = 137  # 128 + 9, as Java says it
CORES = 2  # for each agent that an executor may have


class SimCluster:
    """See the module's text; `driver.cluster.Cluster` documents the port.

    Args:
        world: virtual time.
        costs: what things take.
        method: of the run.
        parameters: how many elements are parameters; the rest are buffers.
        agents: of the run.
        per_executor: agents that one executor may have.
        make_trainer: makes the trainer of (shards, agent, incarnation).
        watch: checks what happens.
    """

    def __init__(
        self,
        world: World,
        costs: Costs,
        method: Method,
        parameters: int,
        agents: int,
        per_executor: int,
        make_trainer: Callable[[int, int, int], SimTrainer],
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
        self.files: dict[str, dict[str, Any]] = {}  # what agents have saved, by URL
        self.echo_s = 0.0  # messages of agents that died arrive once more after so many seconds; 0: they do not
        self.events: list[Any] = []
        self.broadcasts: dict[int, np.ndarray] = {}
        self.sums: dict[int, np.ndarray] = {}
        self._world, self._costs, self._method = world, costs, method
        self._parameters = parameters
        self._agents, self._per_executor = agents, per_executor
        self._make_trainer = make_trainer
        self._jobs = Jobs(world, costs, self)
        self.server = ExchangeServer(world, costs, self)
        self.coding: Coding | None = None  # what travels is encoded
        self._serial = {"executor": 0, "pid": 1000, "broadcast": 0}
        self._closed = False

    def _next(self, name: str) -> int:
        self._serial[name] += 1
        return self._serial[name]

    # ---- the port ------------------------------------------------------------------------------------------------------

    def start_agent(self, who: AgentRef, spec: AgentSpec) -> None:
        """As `Cluster.start_agent`, after `Costs.dispatch_s`; of `spec` only the number of shards counts, and the state."""
        self.watch.started(who)
        self._world.after(self._costs.dispatch_s, self._dispatch, who, spec.start["shards"], spec.start.get("state", {}))

    def submit(self, order: Order) -> None:
        """As `Cluster.submit`: the job's tasks begin after `Costs.dispatch_s`."""
        self.watch.ordered(order)
        if self.coding is not None:
            if order.cut is not None:
                self.coding.cut()
            order = self.coding.ordered(order, self.broadcasts, {name: node.slots() for name, node in self.nodes.items()})
        self._jobs.submit(order)

    def cancel(self, order: int, reason: str) -> None:
        """As `Cluster.cancel`: the job fails at once, and the event comes after `Costs.latency_s`."""
        self._jobs.cancel(order, reason)

    def room(self, elements: int) -> np.ndarray:
        return np.empty(elements, np.float32)

    def take_sum(self, order: int, length: int, into: np.ndarray | None = None) -> np.ndarray:
        taken = self.sums.pop(order)
        assert taken.nbytes == length, (taken.nbytes, length)
        if self.coding is not None:
            self.coding.took(order)
        return taken

    def publish(self, vector: np.ndarray, joint: Outgoing | None = None) -> int:
        number = self._next("broadcast")
        self.broadcasts[number] = vector.copy()
        return number

    def withdraw(self, broadcast: int) -> None:
        """As `Cluster.withdraw`: a download that has not ended by now never ends."""
        self.broadcasts.pop(broadcast, None)
        if self.coding is not None:
            self.coding.withdrawn(broadcast)

    def take_sent(self, who: AgentId, number: int, length: int) -> np.ndarray:
        return self.server.take(who, number, length)

    def answer(self, who: AgentId, number: int, vector: np.ndarray, version: int, mode: str, share: float) -> None:
        self.server.answer(who, number, vector, version, mode, share)

    def rediscover(self, executors: list[str]) -> None:
        """As `Cluster.rediscover`: the answers come after twice `Costs.latency_s`."""
        self._world.after(self._costs.latency_s * 2, self._ask_for_living, executors)

    def poll(self, timeout_s: float) -> list[Any]:
        """As `Cluster.poll`: lets virtual time pass, at most `timeout_s` seconds."""
        self._world.run(self._world.now + timeout_s, self.events)
        events, self.events = self.events, []
        self.watch.events(events)
        if self.coding is not None:
            self.coding.heard(events)
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
        self.server.clear()

    # ---- executors and processes -------------------------------------------------------------------------------------------

    def add_executor(self) -> None:
        """A new executor has come, with room for `per_executor` agents."""
        number = self._next("executor")
        name = f"e{number}"
        clock = NodeClock(self._world, 1000.0 * number, self.skew_s if number % 2 else -self.skew_s)
        self.nodes[name] = Node(name, f"host-{name}", self, clock, Link(self._world), Link(self._world))
        self.emit(ExecutorReady(name, f"host-{name}", CORES * self._per_executor))

    def _dispatch(self, who: AgentRef, shards: int, state: dict[str, Any]) -> None:
        node = self.nodes.get(who.executor)
        if node is None:
            self._hold(who, shards, state)
        else:
            node.driver.send(self._hold, who, shards, state)

    def _hold(self, who: AgentRef, shards: int, state: dict[str, Any]) -> None:
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
        step_s = self._costs.step_of(agent, self._agents)
        pid, method = self._next("pid"), self._method

        def lay(cut: int) -> SimTrainer:
            return self._make_trainer(cut, *who.id)

        process = SimAgent(self._world, node, who.id, pid, method, shards, lay, step_s, self._costs.copy_s)
        node.agents[agent] = process
        process.behind = self.behind.get(agent, process.behind)
        process.resume = self.files[state["url"]] if state else {}
        self.watch.process(process)
        self._world.after(self._costs.boot_s * self._world.random.uniform(0.8, 1.2), process.boot)

    def hello(self, node: Node, agent: SimAgent) -> None:
        """An agent on this node says hello: the driver hears it."""
        bounds, parameters = agent.trainer.bounds, self._parameters
        layout = [["weight", [parameters], "parameter", 0], ["buffer", [bounds[-1] - parameters], "buffer", parameters]]
        local = {"counted": ["int32", [], LOCAL_BYTES]} if self.local else {}
        edges = [*bounds, bounds[-1] + LOCAL_BYTES // 2] if self.local else bounds
        hello = Hello(
            **agent.id._asdict(), pid=agent.pid, python="3", torch="none", mpca="sim",
            x0_hash="x0", layout=layout, local=local, tied={}, bounds=edges, parameters=parameters, segment_fd=0,
            segment_bytes=0, slots=[],
        )  # fmt: skip
        node.driver.send(self.emit, AgentHello(node.name, node.host, hello))

    def emit(self, event: Any) -> None:
        """Let the driver hear an event at its next `poll`; nothing after `close`."""
        if not self._closed:
            self.events.append(event)

    def _ask_for_living(self, executors: list[str]) -> None:
        for name in executors:
            if name in self.nodes:
                self.nodes[name].driver.send(self._find_living, self.nodes[name])

    def _find_living(self, node: Node) -> None:
        if node.alive:
            self.emit(AgentsFound(node.name, node.living()))

    def frozen(self, node: Node, ticket: int, frozen: list[Frozen], late: dict[int, Late], weight: float) -> None:
        """As `Jobs.frozen`."""
        self._jobs.frozen(node, ticket, frozen, late, weight)

    def ask(self, node: Node, agent: SimAgent, one: Ask, data: np.ndarray, start: float) -> None:
        """As `ExchangeServer.ask`."""
        self.server.ask(node, agent, one, data, start)

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
        self._world.after(self._costs.latency_s, node.driver.send, self.emit, event)
        self._echo(event)
        self._echo(AgentBack(node.name, *one.id))
        self._echo(AgentFinished(node.name, *one.id, b""))
        words = self.server.last_words(one.id)
        if words is not None:
            self._echo(words)

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
        if self.coding is not None:
            self.coding.lost(node.name)
        for one in node.agents.values():
            one.die()
            self._after_notice(HoldEnded(*one.id, f"executor {node.name} lost"))
            self._echo(AgentDied(node.name, *one.id, one.pid, SIGKILL, ""))
        self._jobs.lost(node.name)
        self._after_notice(ExecutorLost(node.name, "exited with code 137"))
        node.driver.end()
        node.peers.end()
        if replace:
            self._world.after(self._costs.respawn_s, self._respawn)
        return True

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

    def clog_driver(self, agent: int, for_s: float) -> bool:
        """Nothing passes between the driver and that agent's executor for `for_s` seconds."""
        found = self.process(agent)
        if found is None:
            return False
        found[0].driver.clog(for_s)
        return True

    def clog_peers(self, agent: int, for_s: float) -> bool:
        """Nothing passes between that agent's executor and all other executors for `for_s` seconds."""
        found = self.process(agent)
        if found is None:
            return False
        found[0].peers.clog(for_s)
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
        return found is not None and self._jobs.retry(found[0])

    def misplace(self, agent: int) -> bool:
        """Spark runs the next task of that agent's executor on another one."""
        found = self.process(agent)
        if found is None:
            return False
        self.misplaced.add(found[0].name)
        return True
