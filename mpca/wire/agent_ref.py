"""How orders, events and instructions name the process of an agent.

Every process that plays agent 3 has an incarnation of its own. So what an older process says is known by its incarnation.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["AgentId", "AgentRef", "OfAgent"]


class AgentId(NamedTuple):
    """An agent's number and its incarnation."""

    agent: int
    incarnation: int  # the first one is 0

    def on(self, executor: str) -> AgentRef:
        """The same process, with the executor where it runs."""
        return AgentRef(executor, *self)


class AgentRef(NamedTuple):
    """A process, and the executor where the driver believes it; in an order it is ``[executor, agent, incarnation]``."""

    executor: str
    agent: int
    incarnation: int

    @property
    def id(self) -> AgentId:
        """The process, wherever it runs."""
        return AgentId(self.agent, self.incarnation)


class OfAgent:
    """Base of what belongs to one process of an agent."""

    __slots__ = ()
    agent: int
    incarnation: int

    @property
    def id(self) -> AgentId:
        """Which process that is."""
        return AgentId(self.agent, self.incarnation)
