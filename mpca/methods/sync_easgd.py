"""Synchronous elastic averaging (S. Zhang, A. Choromanska, Y. LeCun: *Deep learning with Elastic Averaging SGD*, eq. 2 to 5).

Every tau updates, with x_i the parameters of agent i and x~ the joint model, both as they are before::

    x_i <- x_i - alpha (x_i - x~)
    x~  <- x~ + alpha (sum of (x_i - x~)) = (1 - beta) x~ + beta (the mean of x_i),    beta = K alpha

This is the form that section 4.5 of the MPCA paper names beside eq. 8. With alpha = beta / K the pull is symmetric: on a flat
loss x~ plus the sum of all x_i stays as it is. What arrives, x~ of this exchange, is what an agent is pulled to in the next,
after its snapshot; so it trains on meanwhile. An agent hands over the model and receives it once in tau updates: M bytes up and
M down. A lost agent is missing in the sums, and the others are pulled by beta / (K - 1) until it is back.

Departures: nobody waits. An agent that is faster than the others, or than an exchange, makes more than tau updates, and the
mean is weighted by updates (eq. 9 of the MPCA paper): the pull is symmetric only while these are equal. At the first exchange
nothing has arrived: x~ moves, and nobody is pulled to x_0. Buffers are blended and not pulled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpca.algorithm import JointShard, blend
from mpca.algorithm.averaging import Vector
from mpca.checks import refused
from mpca.methods.agent_side import AgentSide, How, When
from mpca.methods.base import Method

__all__ = ["SyncEASGD"]


@dataclass(frozen=True)
class SyncEASGD(Method):
    """Elastic averaging of all agents at once. The whole model is one shard.

    Example:
        >>> SyncEASGD().alpha_for(tau=10.0, agents=9)
        0.1
    """

    name: ClassVar[str] = "sync-easgd"

    tau: int = 10
    """Optimiser updates between two exchanges, 1 or more; they must take less than `cluster.cycle_deadline`."""
    beta: float = 0.9
    """Rate at which an exchange replaces the joint model, in (0, 1]; alpha of the agents is beta / K."""

    def __post_init__(self) -> None:
        if self.tau < 1:
            raise refused("method.tau", self.tau, "must be 1 or more")
        if not 0 < self.beta <= 1:
            raise refused("method.beta", self.beta, "must lie in (0, 1]")

    def merge(self, state: JointShard, mean: Vector, v_into: Vector | None = None) -> JointShard:
        return JointShard(blend(state.x, mean, self.beta), state.v, state.k + 1)

    @property
    def agent_side(self) -> AgentSide:
        return AgentSide(How.MIX, When.AFTER_SNAPSHOT, snapshot_after=self.tau)

    def alpha_for(self, tau: float, agents: int) -> float:
        return self.beta / agents

    def beta_at(self, exchange: int) -> float:
        return self.beta
