"""The mapped segment between an agent and its executor: made, sized and filled here; its layout is `wire.slots`."""

from __future__ import annotations

from mpca.shm.agent_segment import AgentSegment
from mpca.shm.memory import available_bytes

__all__ = ["AgentSegment", "available_bytes"]
