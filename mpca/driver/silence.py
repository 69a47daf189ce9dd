"""Which train functions have taken no step for a minute, though nothing keeps them waiting: the driver logs and records it.

At that time the agent's own output says where its Python is (`agent.stall`), unless its process is stopped. The driver speaks
first after `SILENT_S`, and again whenever the silence has doubled. Pure: the time is an argument, in seconds of the machine's
clock.
"""

from __future__ import annotations

import logging

from mpca.driver.agent_table import Agent, AgentTable
from mpca.driver.instructions import Instruction
from mpca.driver.states import AgentState
from mpca.timeouts import SILENT_S
from mpca.units import format_duration
from mpca.wire.agent_ref import AgentId

__all__ = ["Silence"]

log = logging.getLogger("mpca.cycle")

_WHAT = {
    AgentState.STARTING: "has not called mpca.attach",
    AgentState.BEGUN: "has taken no optimizer step since it began",
    AgentState.LATE: "has taken no optimizer step",
}


class Silence:
    """When each agent was heard of last. An agent that answers in time is not silent, however long its steps take."""

    def __init__(self, table: AgentTable) -> None:
        self._table = table
        self._heard: dict[AgentId, float] = {}  # when, in seconds of the machine
        self._next: dict[AgentId, float] = {}  # the length of silence, in seconds, that is told next

    def heard(self, who: AgentId, now: float) -> None:
        """The agent has taken a step, or handed a snapshot over, at `now` (seconds of the machine)."""
        self._heard[who] = now

    def look(self, now: float) -> list[Instruction]:
        """Tell of agents that are silent.

        Args:
            now: seconds of the machine.

        Returns:
            A record for each of them.
        """
        out: list[Instruction] = []
        for agent in self._table.in_state(*_WHAT):
            key = agent.id
            lasts = now - self._heard.get(key, agent.since)
            if lasts < self._next.get(key, SILENT_S):
                continue
            self._next[key] = 2 * lasts
            reason = f"{_WHAT[agent.state]} for {format_duration(round(lasts))}"
            log.warning('%s %s; its output says where its Python is, after "Timeout"', _who(agent), reason)
            out.append(self._table.record(agent, "silent", reason))
        return out


def _who(agent: Agent) -> str:
    host = f"host {agent.host}, " if agent.host else ""
    return f"agent {agent.index} ({host}executor {agent.executor})"
