"""Gathers what the record of a cycle will say, while the cycle goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["CycleRecordBuilder"]


@dataclass(slots=True)
class CycleRecordBuilder:
    """What the record of the current cycle will say. Times are seconds of the machine; sizes are bytes."""

    contributors: dict[int, dict[str, int]] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=lambda: {"driver_in": 0, "driver_out": 0, "in": 0, "out": 0})
    submissions: int = 0
    pauses: dict[int, list[float]] = field(default_factory=dict)

    def line(self, cycle: int, shard: int, numbers: tuple[float, float, float]) -> dict[str, Any]:
        """Make the record's fields.

        Args:
            cycle: its number.
            shard: the shard that it exchanges.
            numbers: alpha, beta and gamma of the exchange.

        Returns:
            Fields of `records.CycleRecord`.
        """
        alpha, beta, gamma = numbers
        return {
            "cycle": cycle,
            "shard": shard,
            "contributors": self.contributors,
            "left_out": {a: why for a, why in sorted(self.left_out.items()) if a not in self.contributors},
            "alpha": alpha,
            "beta": beta,
            "gamma": gamma,
            "stages": self.stages,
            "bytes": self.bytes,
            "submissions": self.submissions,
            "pauses": dict(sorted(self.pauses.items())),
        }

    def mean_tau(self) -> float:
        """Mean number of updates of the contributors that made any; 0 when none did."""
        return sum(one["tau"] for one in self.contributors.values()) / max(1, self.agents_that_trained())

    def agents_that_trained(self) -> int:
        """Number of contributors that made any update."""
        return sum(one["tau"] > 0 for one in self.contributors.values())

    def stretch(self, stage: str, shard: int, start: float, end: float) -> None:
        """Extend a stage of the cycle so that it covers a span of time.

        Args:
            stage: "reduce", "prepare" or "broadcast".
            shard: the shard that the stage moves.
            start: seconds of the machine.
            end: seconds of the machine.
        """
        known = self.stages.get(stage)
        if known is None:
            self.stages[stage] = {"shard": shard, "start": start, "end": end}
        else:
            known["start"] = min(known["start"], start)
            known["end"] = max(known["end"], end)
