"""Which process an agent is: its number and its incarnation. Every process that plays agent 3 has an incarnation of its own."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["AgentId"]


class AgentId(NamedTuple):
    """An agent's number and its incarnation."""

    agent: int
    incarnation: int  # the first one is 0
