"""Invariants, checked after every event: what must hold whatever is killed, stopped or late.

    I1  a contribution (cycle, agent, incarnation) is in at most one sum, once
    I2  joint model = model before + exactly the listed contributions, weighted by tau (eq. 8, 9): with whole numbers an
        equality of integers; the trajectory follows the joint states and never x* (eq. 4); tau counts the updates since
        the shard was handed over or replaced, and is counted here from the trainer's updates
    once an agent takes an arrival in at most once, and never one that is older than what it has
    I4  a frozen snapshot that is read again has the same bytes
    I5  the joint model is finite
    I6  cycles strictly increase; order numbers grow
    I9  a commit has at least min_agents contributors
    I10 an agent that begins has a committed joint model, not extrapolated, whose shards are at most one exchange old
    I11 a quarantined executor gets no agent
    I12 nothing piles up while the run goes on, nothing is left at its end
    said   an agent that does not contribute is left out with a reason
    hold   an agent has one holding job
    cut    a model is cut anew before any agent has begun, and x_0 stays what it was
    local  an agent that joins gets local tensors that one agent had, and so does the joint model
    fence  only the newest incarnation of an agent is asked, and only one that was asked contributes
    cured  an agent that was replaced because its parameters were not finite is finite at its next snapshot
    live   when faults have stopped, the run ends in time, and all living agents contribute again

I3 (all ranges of a commit have the same contributors) follows from I2 here, since every element is compared. I7 and I8
are about backups, which the simulator does not write.

The checker computes the numbers in another way than the engine: from what the trainers handed over, in float64.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol
from zlib import crc32

import numpy as np

from mpca.driver.events import Acknowledged, AgentDied, AgentFinished, AgentHello, OrderDone
from mpca.methods import How, Method
from mpca.records import CycleRecord, ExchangeRecord, Record
from mpca.sim.agents import SimAgent
from mpca.sim.check_joint import JointCheck, close_to
from mpca.sim.check_server import ServerCheck
from mpca.sim.executor import ExecutorState
from mpca.sim.world import World
from mpca.wire.agent_ref import AgentId, AgentRef
from mpca.wire.orders import Frozen, Order

__all__ = ["Checker", "ClusterHolds", "ExecutorHolds", "Violation"]

QUARANTINE_S, QUARANTINE_DEATHS = 600.0, 3


class Violation(AssertionError):
    """An invariant does not hold. `invariant` is its name; the message has the seed and the story."""

    def __init__(self, invariant: str, what: str, seed: int, story: Iterable[str]) -> None:
        super().__init__(f"{invariant}: {what}\nseed={seed}\n" + "\n".join(story))
        self.invariant = invariant


class ExecutorHolds(Protocol):
    """What the checker looks at in an executor."""

    name: str
    blocks: dict[int, tuple[float, np.ndarray]]
    broadcasts: set[int]
    book: ExecutorState


class ClusterHolds(Protocol):
    """What the checker looks at in the cluster."""

    broadcasts: dict[int, np.ndarray]
    sums: dict[int, np.ndarray]

    @property
    def nodes(self) -> Mapping[str, ExecutorHolds]:
        """The executors by name."""
        ...


class Checker:
    """See the module's text. The cluster reports to it what happens; `look` is called after every step of the driver.

    Every method raises `Violation` when an invariant does not hold.

    Args:
        world: virtual time.
        seed: of the run, for messages.
        method: its method.
        agents: of the run.
        min_agents: that a commit needs.
    """

    def __init__(self, world: World, seed: int, method: Method, agents: int, min_agents: int) -> None:
        self._world, self._seed, self._method = world, seed, method
        self._agents, self._min_agents = agents, min_agents
        self._story: deque[tuple[Any, ...]] = deque(maxlen=80)
        self._newest = [-1] * agents  # by agent: the incarnation that was started last
        self._finished: set[int] = set()
        self._died: set[AgentId] = set()  # the news of a death may come twice
        self._deaths: dict[str, list[float]] = {}
        self._quarantined: dict[str, float] = {}
        self._to_be_quarantined: dict[str, float] = {}  # with the next events
        self._processes: list[SimAgent] = []
        self._order, self._cycle = 0, -1
        self._asked: dict[int, set[AgentId]] = {}  # by cycle
        self._frozen: dict[tuple[int, AgentId], tuple[Frozen, np.ndarray]] = {}  # by cycle and process
        self._used: set[tuple[int, AgentId]] = set()  # cycle and process
        self._offered: dict[AgentId, dict[int, int]] = {}  # shard -> version, by process
        self._taken: dict[tuple[AgentId, int], int] = {}  # version, by process and shard
        self._local: list[np.ndarray] = []  # local tensors that agents handed over
        self._updates: dict[tuple[AgentId, int], int] = {}  # updates in its parameters, by process and shard
        self._read: dict[tuple[AgentId, int], tuple[int, int]] = {}  # cycle and updates of its last snapshot, by the same
        self._committed_since = False
        self.joint = JointCheck(method, self.broken)
        self.server = ServerCheck(method, agents, self.joint, self.broken)
        self.last_contributors: set[int] = set()
        self._rounding: Mapping[tuple[int, int], np.ndarray] | None = None

    def coded(self, rested: Callable[[int], np.ndarray], rounding: Mapping[tuple[int, int], np.ndarray]) -> None:
        """What travels is encoded: sums conserve only with what senders keep.

        Args:
            rested: by how much all rests have grown by the sum of a cycle, float64; it is asked once.
            rounding: by shard and version, what it adds to a joint state that agents join at, float64; it grows.
        """
        self._rounding, self.joint.rested = rounding, rested

    # ---- what happens ------------------------------------------------------------------------------------------------

    def tell(self, *what: Any) -> None:
        """Add a line to the story of the newest events."""
        self._story.append((self._world.now, *what))

    def process(self, process: SimAgent) -> None:
        """A process was started."""
        self._processes.append(process)

    def held_again(self, process: SimAgent) -> None:
        """A new holding job has taken hold of a living process."""
        if process.held:
            self.broken("hold", f"agent {process.agent} has two holding jobs: the second takes the core that orders need")
        process.held = True

    def started(self, who: AgentRef) -> None:
        """The driver has asked for a process.

        Raises:
            Violation: fence, I11.
        """
        self.tell("start", who)
        newest = self._newest[who.agent]
        if who.incarnation < newest:
            self.broken("fence", f"agent {who.agent} is started as incarnation {who.incarnation} after {newest}")
        if who.incarnation > newest and self._quarantined.get(who.executor, 0.0) > self._world.now:
            self.broken("I11", f"agent {who.agent} is started on executor {who.executor}, which is quarantined")
        self._newest[who.agent] = who.incarnation

    @property
    def rested_at(self) -> float:
        """When the last quarantine that is over has ended, in seconds of virtual time; 0: none has."""
        return max((until for until in self._quarantined.values() if until <= self._world.now), default=0.0)

    def events(self, events: list[Any]) -> None:
        """The driver is about to hear these events."""
        self._quarantined |= self._to_be_quarantined
        self._to_be_quarantined.clear()
        dying = Counter(event.executor for event in events if type(event) is AgentDied)
        for event in events:
            kind = type(event)
            if kind is AgentDied and event.id not in self._died:
                self._died.add(event.id)
                now = self._world.now
                recent = [t for t in self._deaths.get(event.executor, []) if now - t < QUARANTINE_S]
                self._deaths[event.executor] = [*recent, now]
                if len(recent) + 1 >= QUARANTINE_DEATHS:
                    # of deaths that it hears of together, the driver may answer the first one by a start there
                    known = self._quarantined if dying[event.executor] == 1 else self._to_be_quarantined
                    known[event.executor] = now + QUARANTINE_S
                    self._deaths[event.executor] = []
            elif kind is AgentFinished and event.incarnation == self._newest[event.agent]:
                self._finished.add(event.agent)
            if kind is not AgentHello and kind is not OrderDone and kind is not Acknowledged:
                self.tell(event)

    def ordered(self, order: Order) -> None:
        """The driver has submitted an order.

        Raises:
            Violation: fence, cut, I6, I10.
        """
        self.tell("order", order.order, order.description)
        self.joint.look()
        if order.order <= self._order:
            self.broken("I6", f"order {order.order} after order {self._order}")
        self._order = order.order
        if order.cut is not None:
            if self._updates or self._cycle >= 0:
                self.broken("cut", f"order {order.order} cuts the model anew, in a run that has begun")
            self._method = self._method.cut(order.cut.shards)
            self.joint.cut()
        for who in order.begin:
            self._base(who.id)
        if order.freeze is not None:
            asked = self._asked.setdefault(order.freeze.cycle, set())
            for who in order.freeze.agents:
                newest = self._newest[who.agent]
                if who.incarnation != newest:
                    self.broken("fence", f"asked: agent {who.agent} as {who.incarnation}, the newest is {newest}")
                asked.add(who.id)

    def stepped(self, who: AgentId, updates: int) -> None:
        """An agent's trainer has made so many updates, of all shards."""
        for shard in range(self._method.shards):
            key = (who, shard)
            self._updates[key] = self._updates.get(key, 0) + updates

    def went_on(self, who: AgentId, taus: list[int]) -> None:
        """The process is where an earlier attempt's was, with so many updates of each shard since its last snapshot."""
        for shard, tau in enumerate(taus):
            self._updates[who, shard] = tau

    def snapshot(self, who: AgentId, cycle: int, shard: int) -> int:
        """A shard is read for a cycle.

        Returns:
            How many updates it has that no snapshot for an earlier cycle had.
        """
        fresh, last = self._updates.pop((who, shard), 0), self._read.get((who, shard), (cycle, 0))
        if not fresh and last[0] == cycle:  # it is read again, since the first snapshot came too late
            fresh = last[1]
        self._read[who, shard] = (cycle, fresh)
        return fresh

    def non_finite_again(self, agent: int) -> None:
        """A shard that was replaced is not finite any more, since another shard was not.

        Raises:
            Violation: cured.
        """
        self.broken("cured", f"agent {agent} took an update between two shards that replace its own: not finite again")

    def frozen(self, cycle: int, shard: int, frozen: Frozen, data: np.ndarray, tau: int, stopping: bool) -> None:
        """An executor has accepted a snapshot.

        Args:
            cycle: for which it was asked.
            shard: which one.
            frozen: what the executor says of it.
            data: the trainer's own numbers, float32.
            tau: what `snapshot` answered.
            stopping: the agent was told to stop, and so answered at once.

        Raises:
            Violation: I2, I4.
        """
        key = (cycle, frozen.id)
        if key in self._frozen:
            self.broken("I4", f"a second snapshot of {key} was accepted")
        side = self._method.agent_side
        wanted = side.hold_after or (side.snapshot_after if side.how is not How.REPLACE else 0)
        if 0 < frozen.tau < wanted and not stopping:
            self.broken("I2", f"{key} hands over after {frozen.tau} updates; by its method it is after {wanted}")
        if frozen.tau != tau:
            self.broken("I2", f"tau of {key}, shard {shard}: said {frozen.tau}, trained {tau}")
        self._frozen[key] = (frozen, data)
        if shard >= self._method.shards:
            self._local.append(data)

    def answered(self, executor: str, order: Order, frozen: list[Frozen], weight: float) -> None:
        """An executor answers a freeze.

        Args:
            executor: its name.
            order: which has the freeze.
            frozen: the snapshots that it holds.
            weight: of its part.

        Raises:
            Violation: I4.
        """
        assert order.freeze is not None
        for one in frozen:
            kept, data = self._frozen[(order.freeze.cycle, one.id)]
            if kept != one or crc32(data.data) != one.crc:
                self.broken("I4", f"read again on {executor}, cycle {order.freeze.cycle}: {one}, first {kept}")

    def offered(self, who: AgentId, shard: int, version: int, mode: str, data: np.ndarray) -> None:
        """A download is handed to an agent.

        Args:
            who: its process.
            shard: which one.
            version: of the joint state.
            mode: "install" or "replace".
            data: float32, the shard.

        Raises:
            Violation: I10, local.
        """
        if shard >= self._method.shards:
            if not any(np.array_equal(data, one) for one in self._local):
                self.broken("local", f"agent {who.agent} gets local tensors that no agent had: {data}")
            return
        state = self.joint.committed.get((shard, version))
        if state is None:
            raise self._violation("I10", f"agent {who.agent} gets version {version} of shard {shard}, never committed")
        expected = state.x.astype(np.float64)
        if mode == "install" and version > 0 and self.joint.delta is not None:
            expected[: state.v.size] += self._method.gamma_at(version - 1) * state.v.astype(np.float64)
        if mode == "replace" and self._rounding is not None:
            expected += self._rounding.get((shard, version), 0.0)
        # a rounded one is off by less than what the shard has moved; `coded` checks that all have the same bytes
        if not close_to(data, expected) and not (self._rounding is not None and mode == "install"):
            self.broken("I10", f"agent {who.agent} gets other numbers than version {version} of shard {shard} ({mode})")
        self._offered.setdefault(who, {})[shard] = version

    def taken(self, process: SimAgent, shard: int, version: int, mode: str) -> None:
        """An agent takes an arrival in.

        Raises:
            Violation: once.
        """
        key = (process.id, shard)
        before = self._taken.get(key, -1)
        if version < before or (version == before and mode == "install" and not self._method.asks):
            self.broken("once", f"{key} takes version {version} after version {before} ({mode})")
        self._taken[key] = version
        if mode == "replace" or self._method.agent_side.how is How.REPLACE:
            self._updates.pop(key, None)  # the replacement threw these updates away
            self._read.pop(key, None)

    def record(self, record: Record) -> None:
        """A line of the ledger was written.

        Raises:
            Violation: fence, said, I1, I2, I5, I6, I9.
        """
        self.tell(record)
        if isinstance(record, ExchangeRecord):
            self.server.listed(record, self._newest[record.agent])
            self.last_contributors, self._committed_since = self.server.contributors, True
        if not isinstance(record, CycleRecord):
            return
        cycle, contributors = record.cycle, record.contributors
        if cycle <= self._cycle:
            self.broken("I6", f"cycle {cycle} after cycle {self._cycle}")
        self._cycle = cycle
        self._committed_since = True
        needed = max(1, min(self._min_agents, self._agents - len(self._finished)))
        if len(contributors) < needed:
            self.broken("I9", f"cycle {cycle} has {len(contributors)} contributors, min_agents={needed}")
        if set(contributors) & set(record.left_out):
            self.broken("I2", f"cycle {cycle}: contributors {set(contributors)} and left out {record.left_out}")
        handed = [self._contribution(cycle, agent, one) for agent, one in contributors.items()]
        if set(contributors) | set(record.left_out) != set(range(self._agents)):
            self.broken("said", f"cycle {cycle}: nothing is said of some; contributors {contributors}, {record.left_out}")
        self.last_contributors = set(contributors)
        for old in [key for key in self._frozen if key[0] < cycle]:
            del self._frozen[old]
        self.joint.listed(cycle, record.shard, handed)

    def _contribution(self, cycle: int, agent: int, one: Mapping[str, Any]) -> tuple[int, np.ndarray]:
        """Check one contributor of a cycle; returns its tau and what it handed over."""
        who = AgentId(agent, one["incarnation"])
        key = (cycle, who)
        if key in self._used:
            self.broken("I1", f"{key} contributes twice")
        self._used.add(key)
        if who not in self._asked.get(cycle, ()):
            self.broken("fence", f"{key} contributes and was not asked")
        if key not in self._frozen:
            self.broken("I2", f"{key} contributes, and nothing that it handed over in time was accepted")
        frozen, data = self._frozen[key]
        if (frozen.tau, frozen.crc) != (one["tau"], one["crc"]):
            self.broken("I2", f"{key} is listed as {one}, it handed over {frozen}")
        if not np.isfinite(data).all():
            self.broken("I5", f"{key} contributes and is not finite")
        return frozen.tau, data

    # ---- after every event -----------------------------------------------------------------------------------------------

    def look(self, cluster: ClusterHolds) -> None:
        """Look at the joint model, and after every commit at what driver and executors hold.

        Raises:
            Violation: I2, I5, I6, I12.
        """
        self.joint.look()
        if not self._committed_since:
            return
        self._committed_since = False
        shards = self._method.shards
        if len(cluster.broadcasts) > 2 + 2 * shards or len(cluster.sums) > 1:
            self.broken("I12", f"{len(cluster.broadcasts)} broadcasts, {len(cluster.sums)} sums on the driver")
        for node in cluster.nodes.values():
            if len(node.blocks) > 3 or len(node.broadcasts) > 3 + 2 * shards or len(node.book.cycles) > 4:
                self.broken(
                    "I12",
                    f"executor {node.name} holds blocks of cycles {sorted(node.blocks)}, broadcasts "
                    f"{sorted(node.broadcasts)}, yields of cycles {node.book.cycles}",
                )

    def _base(self, who: AgentId) -> None:
        """An agent that begins stands at x_0, or at a joint model whose shards are at most one exchange old."""
        has = self._offered.get(who)
        for shard, state in enumerate(self.joint.states):
            version = 0 if has is None else has.get(shard, -1)
            if state is not None and state.k - version > 1 and not self._method.asks:
                self.broken(
                    "I10", f"agent {who.agent}, incarnation {who.incarnation} begins at version {version} of shard {shard}; "
                    f"the joint model is at {state.k}"
                )  # fmt: skip

    # ---- the end -------------------------------------------------------------------------------------------------------

    def ended(self) -> None:
        """The driver has closed, the cluster not yet.

        Raises:
            Violation: I2, local.
        """
        joint = self.joint.model()
        if (
            joint is not None
            and joint.layout.local
            and not any(np.array_equal(joint.layout.words(), one) for one in self._local)
        ):
            self.broken("local", f"the joint model has local tensors that no agent had: {joint.layout.local}")
        self.joint.ended()

    def all_contribute(self, expected: set[int]) -> None:
        """The last fault is long over, so these agents must contribute.

        Raises:
            Violation: live.
        """
        if self.last_contributors != expected:
            missing = sorted(expected - self.last_contributors)
            self.broken("live", f"long after the last fault, agents {missing} do not contribute")

    def closed(self, cluster: ClusterHolds) -> None:
        """The cluster has closed: nothing may be left.

        Raises:
            Violation: I12.
        """
        left = [process.agent for process in self._processes if process.alive]
        if left or cluster.broadcasts or cluster.sums or cluster.nodes:
            self.broken("I12", f"left at the end: agents {left}, broadcasts {list(cluster.broadcasts)}")

    def stuck(self, why: str) -> None:
        """The run does not end.

        Raises:
            Violation: live.
        """
        self.broken("live", why)

    def broken(self, invariant: str, what: str) -> None:
        """An invariant does not hold.

        Raises:
            Violation: always.
        """
        raise self._violation(invariant, what)

    def _violation(self, invariant: str, what: str) -> Violation:
        story = [" ".join([f"{one[0]:9.3f}", *(str(part) for part in one[1:])]) for one in self._story]
        return Violation(invariant, what, self._seed, story)
