"""Who trains where: executors and their capacity, the agents on them, their incarnations and their deaths.

The *capacity* of an executor is the number of agents that it has room for: one for every two of its cores. An agent that died
starts again on its own executor if that has room. An agent whose executor is gone starts wherever there is room. Each start is
a new incarnation. The third death on one executor within ten minutes quarantines that executor for ten minutes. Pure: events
in, instructions out, the time is an argument. `now` is seconds of the machine's clock. `states.py` has the states of an agent.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from mpca.driver.instructions import Instruction, StartAgent, Write
from mpca.driver.states import AGENT_MOVES, AgentState, Story
from mpca.timeouts import QUARANTINE_S
from mpca.wire.agent_ref import AgentId, AgentRef

__all__ = [
    "QUARANTINE_DEATHS",
    "UNUSABLE_EXCHANGES",
    "UNUSABLE_TIMES",
    "Agent",
    "AgentTable",
    "Executor",
]

log = logging.getLogger("mpca.agents")

QUARANTINE_DEATHS = 3
#: When an agent's parameters could not be used this often within that many exchanges, its optimiser state is to blame: the
#: agent is started anew.
UNUSABLE_TIMES = 3
UNUSABLE_EXCHANGES = 10


@dataclass(slots=True)
class Agent:
    """One agent, and the process that plays it now."""

    index: int
    state: AgentState = AgentState.ABSENT
    incarnation: int = -1  # the first one is 0
    executor: str | None = None
    host: str = ""
    pid: int = 0
    since: float = 0.0  # seconds of the machine: when the agent came into this state
    stepped: bool = False  # this incarnation has taken an update: its data are loaded, and what had to be compiled is
    why: str = ""  # why the agent came into this state
    lost: str = ""  # why its last incarnation was lost
    told: bool = False  # a record says already that this incarnation was lost
    unusable_at: list[int] = field(default_factory=list)  # exchanges at which this incarnation's parameters could not be used

    @property
    def id(self) -> AgentId:
        """Its number and its incarnation."""
        return AgentId(self.index, self.incarnation)

    @property
    def ref(self) -> AgentRef:
        """How an order names its process; only for an agent that has one."""
        assert self.executor is not None
        return self.id.on(self.executor)


@dataclass(slots=True)
class Executor:
    """An executor of the cluster. `deaths` has the times (seconds of the machine) of newest deaths there."""

    name: str
    host: str
    capacity: int  # agents that it has room for
    arrived: int  # executors that came before it
    deaths: list[float] = field(default_factory=list)
    quarantined_until: float = 0.0
    agents: set[int] = field(default_factory=set)  # numbers of those that occupy it

    @property
    def room(self) -> bool:
        """Whether one more agent fits."""
        return len(self.agents) < self.capacity


class AgentTable:
    """See the module's text. A move, a look-up and a start cost the same however many agents there are.

    Two heaps say which agents are to start and where there is room. They hold what was true once: an entry that is not true any
    more is dropped when it comes to the top.

    Args:
        wanted: agents of the run.
        per_executor: how many of them one executor may have.
    """

    def __init__(self, wanted: int, per_executor: int) -> None:
        self.agents = [Agent(index) for index in range(wanted)]
        self.executors: dict[str, Executor] = {}
        self._arrivals = 0
        self._in: dict[AgentState, set[int]] = {state: set() for state in AgentState}  # numbers of the agents in each state
        self._in[AgentState.ABSENT] = set(range(wanted))
        self._absent = list(range(wanted))  # heap of numbers
        self._free: list[tuple[int, int, str]] = []  # heap of (agents there, when it arrived, executor)
        self._resting: set[str] = set()  # executors that are quarantined
        self._per_executor = per_executor
        self.lost = 0
        self.replaced = 0
        self.story = Story()

    # ---- questions ---------------------------------------------------------------------------------------------------

    def in_state(self, *states: AgentState) -> Iterator[Agent]:
        """Agents in one of these states, by number."""
        return (self.agents[index] for index in sorted(index for state in states for index in self._in[state]))

    def count(self, *states: AgentState) -> int:
        """How many agents are in one of these states."""
        return sum(len(self._in[state]) for state in states)

    def find(self, who: AgentId) -> Agent | None:
        """The agent if this incarnation is the current one, else None: the fence against what older ones still say."""
        if not 0 <= who.agent < len(self.agents):
            return None
        found = self.agents[who.agent]
        return found if found.incarnation == who.incarnation and found.state != AgentState.ABSENT else None

    def is_late(self, who: AgentId) -> bool:
        """Whether this incarnation is the current one, and LATE."""
        found = self.find(who)
        return found is not None and found.state == AgentState.LATE

    def why_unasked(self, agent: Agent) -> str:
        """Why an agent is not asked for a contribution, in words for a record.

        Returns:
            Its state, and what brought it there.
        """
        if agent.state == AgentState.ABSENT:
            return f"absent: {agent.lost or agent.why or 'no executor has room for it'}"
        if agent.state == AgentState.STARTING:
            return f"starting: {agent.lost or 'its process has not said hello'}"
        if agent.state == AgentState.JOINING:
            return "joining: it takes the joint model"
        if agent.state in (AgentState.READY, AgentState.BEGUN):
            return "beginning: it has taken no update yet"
        if agent.state == AgentState.LATE:
            return f"late: {agent.why}"
        if agent.state == AgentState.FINISHED:
            return "finished: its train function returned"
        return "not asked: it came too late for this cycle"

    # ---- executors ---------------------------------------------------------------------------------------------------

    @property
    def seats(self) -> int:
        """Agents that there is room for on executors that are not quarantined, and on those that have yet to come."""
        to_come = max(0, -(-len(self.agents) // self._per_executor) - len(self.executors))
        here = sum(one.capacity for one in self.executors.values() if one.name not in self._resting)
        return here + to_come * self._per_executor

    def executor_ready(self, name: str, host: str, cores: int, now: float) -> list[Instruction]:
        """An executor has come. It has room for one agent for every two of its cores, up to `per_executor`.

        Args:
            name: its id in the cluster.
            host: where it runs.
            cores: task slots that it offers.
            now: seconds of the machine.

        Returns:
            StartAgent for each absent agent that an executor has room for now.
        """
        if name in self.executors:
            return []
        self.executors[name] = come = Executor(name, host, min(cores // 2, self._per_executor), self._arrivals)
        self._arrivals += 1
        self._offer(come)
        return self.fill(now)

    def executor_lost(self, name: str, reason: str, now: float, refill: bool = True) -> list[Instruction]:
        """An executor is gone, and its agents with it.

        Args:
            name: its id in the cluster.
            reason: why, for the records.
            now: seconds of the machine.
            refill: whether absent agents start elsewhere at once.

        Returns:
            A record for each agent that was lost, then StartAgent for those that another executor has room for.
        """
        gone = self.executors.pop(name, None)
        if gone is None:
            return []
        self._resting.discard(name)
        out: list[Instruction] = []
        for index in sorted(gone.agents):
            out += self._lost(self.agents[index], f"executor {name} lost: {reason}", now)
        return out + self.fill(now) if refill else out

    def fill(self, now: float) -> list[Instruction]:
        """Start absent agents on executors that have room and are not quarantined.

        Args:
            now: seconds of the machine.

        Returns:
            One StartAgent for each of them.
        """
        for name in [name for name in self._resting if self.executors[name].quarantined_until <= now]:
            self._resting.discard(name)
            self._offer(self.executors[name])
        out: list[Instruction] = []
        while self._absent:
            agent = self.agents[self._absent[0]]
            if agent.state == AgentState.ABSENT:
                # its own executor first, where its data may be cached; then the emptiest, in order of arrival
                own, emptiest = self.executors.get(agent.executor or ""), self._emptiest()
                if emptiest is None:
                    break
                there = own is not None and own.room and own.name not in self._resting
                out.append(self._start(agent, own if own is not None and there else emptiest, now))
            heappop(self._absent)
        return out

    def _offer(self, executor: Executor) -> None:
        """The executor may have room, and another number of agents than before."""
        if executor.room and executor.name not in self._resting:
            heappush(self._free, (len(executor.agents), executor.arrived, executor.name))
            if len(self._free) > 4 * (len(self.executors) + len(self.agents)):
                self._free = [one for one in self._free if self._is_true(one)]
                heapify(self._free)

    def _emptiest(self) -> Executor | None:
        while self._free and not self._is_true(self._free[0]):
            heappop(self._free)
        return self.executors[self._free[0][2]] if self._free else None

    def _is_true(self, entry: tuple[int, int, str]) -> bool:
        used, arrived, name = entry
        executor = self.executors.get(name)
        if executor is None or executor.arrived != arrived or name in self._resting:
            return False
        return executor.room and len(executor.agents) == used

    # ---- agents ------------------------------------------------------------------------------------------------------

    def hello(self, who: AgentId, host: str, pid: int, now: float) -> list[Instruction]:
        """A process that was started says hello: its agent is JOINING.

        Args:
            who: the process.
            host: where it runs.
            pid: its number on that host.
            now: seconds of the machine.

        Returns:
            A record; nothing when the incarnation is old or has said hello before, with these shards or others.
        """
        found = self.find(who)
        if found is None or found.state != AgentState.STARTING:
            return []
        again, found.host, found.pid = found.pid, host, pid
        self.move(found, AgentState.JOINING, now, "hello")
        if again:
            return []
        event = "started" if who.incarnation == 0 else "replaced"
        self.replaced += who.incarnation > 0
        return [self.record(found, event)]

    def cut_anew(self, now: float) -> tuple[list[AgentRef], list[Instruction]]:
        """The model is to be cut anew: who has said hello is STARTING until it has done so again.

        Agents that have not said hello yet were told the old number: they are started anew.

        Args:
            now: seconds of the machine.

        Returns:
            The agents that must be told, and StartAgent for the others.
        """
        for agent in list(self.in_state(AgentState.STARTING)):
            self.move(agent, AgentState.ABSENT, now, "the model was cut anew before it had said hello")
        out, told = self.fill(now), list(self.in_state(AgentState.JOINING))
        for agent in told:
            self.move(agent, AgentState.STARTING, now, "it cuts the model anew")
        return [agent.ref for agent in told], out

    def died(self, who: AgentId, reason: str, now: float) -> list[Instruction]:
        """The process of an agent has ended, and its executor lives. The death counts against the executor.

        Args:
            who: the process.
            reason: how it ended, for the record.
            now: seconds of the machine.

        Returns:
            A record, and StartAgent for each absent agent that an executor has room for; nothing when the incarnation is old or
            has finished.
        """
        found = self.find(who)
        if found is None or found.state == AgentState.FINISHED:
            return []
        executor = self.executors.get(found.executor or "")
        out = self._lost(found, reason, now)
        if executor is not None:
            executor.deaths = [t for t in executor.deaths if now - t < QUARANTINE_S] + [now]
            if len(executor.deaths) >= QUARANTINE_DEATHS:
                executor.quarantined_until = now + QUARANTINE_S
                executor.deaths = []
                self._resting.add(executor.name)
                log.warning(
                    "executor=%s host=%s quarantined for %.0f s: agents died there %d times, the last one with %s",
                    executor.name, executor.host, QUARANTINE_S, QUARANTINE_DEATHS, reason,
                )  # fmt: skip
        return out + self.fill(now)

    def trains(self, who: AgentId, now: float) -> None:
        """The agent has taken an update at `now` (seconds of the machine)."""
        found = self.find(who)
        if found is None:
            return
        found.stepped = True
        if found.state in (AgentState.READY, AgentState.BEGUN):  # READY: it heard Begin from an order that failed
            self.move(found, AgentState.ACTIVE, now, "first update")

    def late(self, who: AgentId, reason: str, now: float) -> None:
        """An ACTIVE agent has not done in time what it was asked for: it is LATE. No record says so yet: see `given_up`.

        Args:
            who: the process.
            reason: what it did not do.
            now: seconds of the machine.
        """
        found = self.find(who)
        if found is not None and found.state == AgentState.ACTIVE:
            self.move(found, AgentState.LATE, now, reason)

    def given_up(self, who: AgentId, reason: str) -> list[Instruction]:
        """A LATE agent counts as lost: nothing that it still does by itself would bring it back.

        Args:
            who: the process.
            reason: why, for the record.

        Returns:
            A record; nothing when the agent is not LATE, or one was written since it is.
        """
        found = self.find(who)
        if found is None or found.state != AgentState.LATE or found.told:
            return []
        found.told = True
        self.lost += 1
        return [self.record(found, "lost", reason)]

    def back(self, who: AgentId, now: float, reason: str) -> list[Instruction]:
        """A LATE agent has answered after all: it is ACTIVE.

        Args:
            who: the process.
            now: seconds of the machine.
            reason: what it answered, for the record.

        Returns:
            A record if one said that the agent was lost.
        """
        found = self.find(who)
        if found is None or found.state != AgentState.LATE:
            return []
        self.move(found, AgentState.ACTIVE, now, reason)
        told, found.told = found.told, False
        return [self.record(found, "rediscovered", reason)] if told else []

    def unusable(self, agent: Agent, exchange: int, now: float, what: str, joins: bool = True) -> list[Instruction]:
        """The agent's parameters cannot enter a sum. The agent takes the joint model as its own; the third time it starts anew.

        It starts on the same executor, whose registry ends the older incarnation. This is no death of the executor, which is
        well.

        Args:
            agent: whose parameters they are.
            exchange: number of the exchange, over all shards.
            now: seconds of the machine.
            what: what is wrong with them, such as "not finite".
            joins: whether an order brings it the joint model; else it is on its way already.

        Returns:
            Nothing; at a new start a record and StartAgent.
        """
        agent.unusable_at = [k for k in agent.unusable_at if exchange - k < UNUSABLE_EXCHANGES] + [exchange]
        if len(agent.unusable_at) < UNUSABLE_TIMES and not joins:
            return []
        if len(agent.unusable_at) < UNUSABLE_TIMES:
            self.move(agent, AgentState.JOINING, now, f"its parameters are {what}: it takes the joint model")
            return []
        reason = f"its parameters were {what} {UNUSABLE_TIMES} times within {UNUSABLE_EXCHANGES} exchanges"
        executor = self.executors[agent.executor or ""]
        return [*self._lost(agent, reason, now), self._start(agent, executor, now)]

    def finished(self, who: AgentId, now: float) -> list[Instruction]:
        """The agent's train function has returned.

        Returns:
            A record; nothing when the incarnation is old or has finished before.
        """
        found = self.find(who)
        if found is None or found.state == AgentState.FINISHED:
            return []
        self.move(found, AgentState.FINISHED, now, "its train function returned")
        return [self.record(found, "finished")]

    def hold_again(self, who: AgentId, executor: str) -> list[Instruction]:
        """A holding job ended, but the process lives: a new holding job takes hold of it, and its optimiser notices nothing.

        Returns:
            StartAgent for the same incarnation, and a record.
        """
        found = self.find(who)
        if found is None or found.state == AgentState.FINISHED:
            return []
        return [
            StartAgent(who.on(executor)),
            self.record(found, "rediscovered", "its holding job had ended"),
        ]

    # ---- inside ------------------------------------------------------------------------------------------------------

    def move(self, agent: Agent, state: AgentState, now: float, reason: str) -> None:
        """Move one agent to another state.

        Args:
            agent: who moves.
            state: where to.
            now: seconds of the machine.
            reason: why, for the log and for `why_unasked`.

        Raises:
            LocalProtocolError: the move is illegal; nothing was changed.
        """
        self.story.moved(f"agent={agent.index}", agent.state, state, reason, AGENT_MOVES, now)
        log.debug("agent=%d state %s -> %s reason=%r", agent.index, agent.state, state, reason)
        self._in[agent.state].discard(agent.index)
        self._in[state].add(agent.index)
        agent.state = state
        agent.since, agent.why = now, reason
        if state == AgentState.ABSENT:
            heappush(self._absent, agent.index)
        executor = self.executors.get(agent.executor or "")
        if executor is not None and state in (AgentState.ABSENT, AgentState.FINISHED):
            executor.agents.discard(agent.index)
            self._offer(executor)
        elif executor is not None and state == AgentState.STARTING:
            executor.agents.add(agent.index)
            self._offer(executor)

    def _start(self, agent: Agent, executor: Executor, now: float) -> StartAgent:
        agent.incarnation += 1
        agent.stepped = agent.told = False
        agent.unusable_at = []
        agent.executor, agent.host, agent.pid = executor.name, executor.host, 0
        self.move(agent, AgentState.STARTING, now, f"room on executor {executor.name}")
        return StartAgent(agent.ref)

    def _lost(self, agent: Agent, reason: str, now: float) -> list[Instruction]:
        record = self.record(agent, "lost", reason)
        self.move(agent, AgentState.ABSENT, now, reason)
        agent.lost = reason
        if agent.told:
            return []
        self.lost += 1
        return [record]

    @staticmethod
    def record(agent: Agent, event: str, reason: str = "") -> Write:
        """A record of kind `agent`: what happened to an agent, and in which process."""
        return Write(
            "agent",
            {
                "event": event,
                "index": agent.index,
                "incarnation": agent.incarnation,
                "host": agent.host,
                "executor_id": agent.executor or "",
                "pid": agent.pid,
                "reason": reason,
            },
        )
