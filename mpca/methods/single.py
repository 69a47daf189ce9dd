"""One agent alone, the paper's single GPU: the driver reads it for evaluation and backups, and never changes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpca.algorithm import JointShard
from mpca.algorithm.averaging import Vector
from mpca.methods.base import Method

__all__ = ["Single"]


@dataclass(frozen=True)
class Single(Method):
    """The joint model is the agent's last snapshot. There is one shard, so that all parameters are of one moment."""

    name: ClassVar[str] = "single"

    @property
    def exchanges(self) -> bool:
        return False

    def agents(self, wanted: int) -> int:
        return 1

    def merge(self, state: JointShard, mean: Vector) -> JointShard:
        return JointShard(mean, state.v, state.k + 1)
