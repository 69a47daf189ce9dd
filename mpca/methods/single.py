"""One agent alone, the paper's single GPU: the driver reads it for evaluation and backups, and never changes it.

With `ema` the joint model is an exponential average of the agent's parameters, which is evaluated and saved in their place. It
is the control that a comparison owes: averaging in time instead of over agents. Every n updates, with x the parameters::

    x~ <- ema^n x~ + (1 - ema^n) x         the first x as it is

A reading is M bytes up, and nothing down. A lost agent's replacement starts at the joint model: the last reading, or the
average. Departure: the average has one reading in n updates and not each of them; fewer if a reading takes longer than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpca.algorithm import JointShard, blend
from mpca.algorithm.averaging import Vector
from mpca.checks import refused
from mpca.methods.agent_side import AgentSide
from mpca.methods.base import Method

__all__ = ["Single"]


@dataclass(frozen=True)
class Single(Method):
    """The joint model is the agent's last snapshot, or their average. There is one shard: all parameters are of one moment.

    Example:
        >>> Single(ema=0.9, every=2).beta_at(exchange=5)
        0.18999999999999995
    """

    name: ClassVar[str] = "single"

    ema: float = 0.0
    """Share of the average that stays at each update, in [0, 1), such as 0.998; 0: no average."""
    every: int = 10
    """With `ema`: updates between two readings, 1 or more."""

    def __post_init__(self) -> None:
        if not 0 <= self.ema < 1:
            raise refused("method.ema", self.ema, "must lie in [0, 1)")
        if self.every < 1:
            raise refused("method.every", self.every, "must be 1 or more")

    @property
    def exchanges(self) -> bool:
        return False

    def agents(self, wanted: int) -> int:
        return 1

    def merge(self, state: JointShard, mean: Vector, v_into: Vector | None = None) -> JointShard:
        x = blend(state.x, mean, self.beta_at(state.k)) if self.ema else mean
        return JointShard(x, state.v, state.k + 1)

    @property
    def agent_side(self) -> AgentSide:
        return AgentSide(snapshot_after=self.every if self.ema else 0)

    def beta_at(self, exchange: int) -> float:
        return 1 - self.ema**self.every if self.ema and exchange else 1.0
