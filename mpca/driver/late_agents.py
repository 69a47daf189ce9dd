"""Which agents are late, which answer again, whose holding job ended, and when executors are asked for them (rediscovery).

`AgentTable` knows the state of each agent. This file names agents by `AgentId`, which is the fence again. `now` is
seconds of the machine's clock.
"""

from __future__ import annotations

from mpca.driver.agent_table import Agent, AgentTable
from mpca.driver.events import AgentBack, AgentsFound, HoldEnded
from mpca.driver.instructions import Instruction, Rediscover
from mpca.driver.states import AgentState
from mpca.timeouts import ASK_AGAIN_S, BARRED_S
from mpca.wire.agent_ref import AgentId
from mpca.wire.orders import GONE, Late, LateCode

__all__ = ["DOWNLOAD_LATE", "LateAgents"]

#: Why an agent is late that has not acknowledged a broadcast, in records and in `left_out` of cycles.
DOWNLOAD_LATE = "its download was not acknowledged in time"


class LateAgents:
    """See the module's text."""

    def __init__(self, table: AgentTable) -> None:
        self._table = table
        self._suspects: set[AgentId] = set()  # left out, and not known to be lost: their executors are asked for them
        self._ask_at = 0.0
        self._owing: dict[AgentId, float] = {}  # late with a download that may still end -> until when
        self._unheld: set[AgentId] = set()  # their holding job ended
        self._barred: dict[str, float] = {}  # executors that damage what they send -> until when
        self._early: set[AgentId] = set()  # their late answer came before the news that they were late

    def left_out(self, agent: Agent, reason: str, now: float) -> list[Instruction]:
        """The agent is late, and nothing that it still owes would bring it back: its executor is asked for it.

        Args:
            agent: who is late.
            reason: with what, for the record.
            now: seconds of the machine.

        Returns:
            A record.
        """
        self._suspects.add(agent.id)
        self._ask_at = now + ASK_AGAIN_S
        self._table.late(agent.id, reason, now)
        return self._table.given_up(agent.id, reason)

    def late_alone(self, agent: Agent, until: float, now: float) -> None:
        """The agent is late with a download that goes on; its acknowledgement brings it back.

        It is not lost until that time is over: a healthy agent is late for a moment when the executor that owes it a piece
        dies, and what is written then is that executor's loss alone.

        Args:
            agent: who is late.
            until: seconds of the machine; then the agent counts as lost, and its executor is asked for it.
            now: seconds of the machine.
        """
        self._owing[agent.id] = until
        self._table.late(agent.id, DOWNLOAD_LATE, now)

    def owes(self, key: AgentId) -> bool:
        """Whether the agent's download may still end."""
        return key in self._owing and self._table.is_late(key)

    def was_late(self, key: AgentId, why: Late, now: float) -> list[Instruction]:
        """An executor answered an order without this agent. An agent that has answered in the meantime is not late.

        Args:
            key: the process.
            why: what its executor says of it.
            now: seconds of the machine.

        Returns:
            A record, or nothing.
        """
        if key in self._early:
            self._early.discard(key)
            return []
        self._table.late(key, why.text, now)
        if why.code in GONE or why.code == LateCode.NO_BASE:
            return []  # the news of its death is on its way here, and says why; or that its executor has the base
        return self._table.given_up(key, why.text)

    def answered(self, key: AgentId) -> None:
        """The agent handed a snapshot over in time."""
        self._early.discard(key)

    def on_back(self, event: AgentBack, now: float) -> list[Instruction]:
        """A late agent has answered after all. The news may come before the order that says it was late.

        Returns:
            A record if one said that the agent was lost.
        """
        key = event.id
        found = self._table.find(key)
        if found is not None and found.state == AgentState.ACTIVE:
            self._early.add(key)
        return self.back(key, now, "it answered again")

    def on_acknowledged(self, key: AgentId, now: float) -> list[Instruction]:
        """An agent's download has ended. A late agent that owed it, or is suspected, comes back.

        Returns:
            A record if one said that the agent was lost.
        """
        if self._owing.pop(key, None) is None and key not in self._suspects:
            return []
        return self.back(key, now, "its download came after all")

    def bar(self, executor: str, now: float) -> None:
        """Agents of this executor that are late stay so for `BARRED_S`, whatever they answer."""
        self._barred[executor] = now + BARRED_S

    def back(self, key: AgentId, now: float, reason: str) -> list[Instruction]:
        """A late agent is back, unless its executor is barred.

        Args:
            key: the process.
            now: seconds of the machine.
            reason: what it did, for the record.

        Returns:
            A record if one said that the agent was lost.
        """
        found = self._table.find(key)
        if found is not None and found.executor in self._barred:
            self._suspects.add(key)  # its executor is asked for it when the bar is over
            return []
        return self._table.back(key, now, reason)

    def on_hold_ended(self, event: HoldEnded) -> list[Instruction]:
        """A holding job has ended: its executor is asked whether the process lives.

        Returns:
            Rediscover, or nothing when the agent has ended or is lost already.
        """
        found = self._table.find(event.id)
        if found is None or found.state == AgentState.FINISHED or found.executor not in self._table.executors:
            return []  # the agent has ended, or is lost with its executor: other events say the rest
        self._unheld.add(event.id)
        return self.ask()

    def on_found(self, event: AgentsFound, now: float) -> list[Instruction]:
        """An executor says which agents live there.

        Args:
            event: its answer.
            now: seconds of the machine.

        Returns:
            StartAgent for agents that need a new holding job, and records of agents that are back or dead.
        """
        out: list[Instruction] = []
        settled = {one.id for one in event.agents}
        for one in event.agents:
            key = one.id
            found = self._table.find(key)
            if found is None or found.executor != event.executor or found.state == AgentState.FINISHED:
                continue
            if key in self._unheld:  # in this case only: a second holding job would take the core that orders need
                out += self._table.hold_again(key, event.executor)
            if key in self._suspects:
                out += self.back(key, now, "its executor answered again")
        for key in sorted(self._unheld - settled):
            found = self._table.find(key)
            if found is None or found.executor == event.executor:  # other executors answer for their own agents
                out += self._table.died(key, "its holding job ended, and its process with it", now)
                settled.add(key)
        self._unheld -= settled
        if event.executor not in self._barred:
            self._suspects -= settled
        return out

    def on_tick(self, now: float) -> list[Instruction]:
        """Ask again, from time to time, for agents whose fate is open: an answer may never come.

        Args:
            now: seconds of the machine.

        Returns:
            Records of agents whose download did not end in time, and Rediscover, or nothing.
        """
        out: list[Instruction] = []
        for key in [key for key, until in self._owing.items() if now > until]:
            del self._owing[key]
            self._suspects.add(key)
            out += self._table.given_up(key, DOWNLOAD_LATE)
        if now < self._ask_at:
            return out
        self._ask_at = now + ASK_AGAIN_S
        self._barred = {executor: until for executor, until in self._barred.items() if now < until}
        self._suspects = {key for key in self._suspects if self._table.is_late(key)}
        return out + self.ask()

    def ask(self) -> list[Instruction]:
        """Ask the executors of agents whose fate is open, and no others: a question is a Spark job.

        Returns:
            Rediscover, or nothing.
        """
        suspects = (self._table.find(key) for key in self._suspects)
        open_ones = [found for found in suspects if found is not None and found.executor not in self._barred]
        open_ones += [found for key in self._unheld if (found := self._table.find(key)) is not None]
        executors = sorted({found.executor for found in open_ones if found.executor})
        return [Rediscover(executors)] if executors else []
