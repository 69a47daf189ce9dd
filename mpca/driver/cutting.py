"""How many shards an "auto" number is: what the reading of x_0 tells of the network, before any agent has taken a step.

x_0 is read by two orders a shard. The first one freezes it, and nothing goes over the wire: its seconds are those that any
cycle has. Their median counts, since the first order of all loads classes. The second one brings the shard to the driver. The
fastest one counts, by seconds a byte, less the fixed ones: twice the bytes of the model, since a port carries (2 K - 1) / K
shards of K agents in a cycle of three phases. Both lean towards fewer shards. How long an agent's batch holds a cycle up is not
known yet.
"""

from __future__ import annotations

from statistics import median_high
from typing import Any

from mpca.algorithm import shards_for

__all__ = ["Cutting"]


class Cutting:
    """Seconds of the orders that read x_0."""

    def __init__(self) -> None:
        self._freezes: list[float] = []
        self._sums: list[tuple[float, int]] = []  # seconds, bytes

    def froze(self, seconds: float) -> None:
        """An order that carries nothing took so long."""
        self._freezes.append(seconds)

    def brought(self, seconds: float, length: int) -> None:
        """An order with a shard of so many bytes took so long."""
        self._sums.append((seconds, length))

    def decide(self, model_bytes: int) -> dict[str, Any]:
        """The number of shards, and the numbers that it was decided by.

        Args:
            model_bytes: bytes of the whole model.

        Returns:
            Fields of `records.BeginRecord`.
        """
        fixed = median_high(self._freezes)
        a_byte = min((max(0.0, seconds - fixed) / length for seconds, length in self._sums if length), default=0.0)
        wire = 2 * model_bytes * a_byte
        shards = shards_for(lambda share: fixed + share * wire)
        return {"shards": shards, "period_s": shards * fixed + wire, "fixed_s": fixed, "wire_s": wire}
