"""Synchronous model averaging, as in SparkNet and DL4J (section 3.1 of the paper): stop, average, replace, continue.

With tau = 1, plain SGD and equal batches it is one machine with a K times larger batch (DL4J's identity).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpca.algorithm import JointShard
from mpca.algorithm.averaging import Vector
from mpca.checks import refused
from mpca.methods.agent_side import AgentSide, How, When
from mpca.methods.base import Method

__all__ = ["Sync"]


@dataclass(frozen=True)
class Sync(Method):
    """After every tau updates all agents wait, and replace their models, including buffers, by the mean.

    The mean is weighted by the numbers of updates (eq. 9), which are all tau here. The whole model is one shard, since a
    replaced part of a model would be misaligned with the rest (figure 10b).

    Example:
        >>> Sync(tau=5).agent_side.hold_after
        5
    """

    name: ClassVar[str] = "sync"

    tau: int = 10
    """Optimiser updates between two exchanges, 1 or more."""

    def __post_init__(self) -> None:
        if self.tau < 1:
            raise refused("method.tau", self.tau, "must be 1 or more")

    def merge(self, state: JointShard, mean: Vector) -> JointShard:
        return JointShard(mean, state.v, state.k + 1)

    @property
    def agent_side(self) -> AgentSide:
        return AgentSide(How.REPLACE, When.ON_ARRIVAL, hold_after=self.tau)
