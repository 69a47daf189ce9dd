"""Whose train function has taken no step for a minute, though it is not kept waiting: the driver's word on it.

Where the agent's Python is, its own output says at that time (`agent.stall`), unless its process is stopped. Told at first
after `SILENT_S`, and again whenever the silence has doubled. Pure: the time is an argument.
"""

from __future__ import annotations

import logging

from mpca.driver.agent_id import AgentId
from mpca.driver.agent_table import Agent, AgentTable
from mpca.driver.instructions import Instruction
from mpca.driver.states import AgentState
from mpca.units import format_duration

__all__ = ["SILENT_S", "Silence"]

log = logging.getLogger("mpca.cycle")

SILENT_S = 60.0
_WHAT = {
    AgentState.STARTING: "has not called mpca.attach",
    AgentState.BEGUN: "has taken no optimizer step since it began",
    AgentState.LATE: "has taken no optimizer step",
}


class Silence:
    """What was heard of each agent last. One that answers in time is not silent, whatever its steps take."""

    def __init__(self, table: AgentTable) -> None:
        self._table = table
        self._heard: dict[AgentId, float] = {}  # when
        self._next: dict[AgentId, float] = {}  # the length of silence that is told next

    def heard(self, who: AgentId, now: float) -> None:
        """It has taken a step, or handed a yield over."""
        self._heard[who] = now

    def look(self, now: float) -> list[Instruction]:
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
