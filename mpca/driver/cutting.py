"""How many shards an "auto" number is: what the reading of x_0 tells of the network, before any agent has taken a step.

A shard of x_0 is frozen by one order and brought to the driver by another one. Seconds of the wire are those between the
first executor's beginning of a sum and the last one's end; the fastest sum a byte counts. Twice the bytes of the model go over
a port, which carries (2 K - 1) / K shards of K agents in a cycle of three phases.

Fixed are the seconds of an order that carries nothing, a freeze among them. The first orders of a run are slow, since JVMs load
and compile what they run. So orders follow that do nothing at all, until the median says what it is later. How long an agent's
batch holds a cycle up is not known yet.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from statistics import median_low
from typing import Any

from mpca.algorithm import shards_for
from mpca.wire.orders import Answer

__all__ = ["ENOUGH", "Cutting"]

log = logging.getLogger("mpca.cycle")

#: Orders that carry nothing, of which the median counts. Warm ones take a tenth of a second.
ENOUGH = 15


class Cutting:
    """Seconds of the orders before the first cycle."""

    def __init__(self) -> None:
        self._fixed: list[float] = []
        self._a_byte: list[float] = []

    @property
    def knows(self) -> bool:
        """Whether enough orders were seen that carry nothing."""
        return len(self._fixed) >= ENOUGH

    def empty(self, seconds: float) -> None:
        """An order that carries nothing took so long."""
        self._fixed.append(seconds)

    def brought(self, answers: Iterable[Answer], length: int) -> None:
        """An order has brought a shard of so many bytes to the driver."""
        took = [(one.reduce_start, one.reduce_end) for one in answers if one.reduce_end]
        if took and length:
            self._a_byte.append(max(0.0, max(end for _, end in took) - min(start for start, _ in took)) / length)

    def decide(self, model_bytes: int) -> dict[str, Any]:
        """The number of shards, and the numbers that it was decided by.

        Args:
            model_bytes: bytes of the whole model.

        Returns:
            Fields of `records.BeginRecord`.
        """
        log.debug("fixed_s=%s wire_s_a_byte=%s", self._fixed, self._a_byte)
        fixed, wire = median_low(self._fixed), 2 * model_bytes * min(self._a_byte, default=0.0)
        shards = shards_for(lambda share: fixed + share * wire)
        log.info("shards=%d fixed_s=%.3f wire_s=%.3f", shards, fixed, wire)
        return {"shards": shards, "period_s": shards * fixed + wire, "fixed_s": fixed, "wire_s": wire}
