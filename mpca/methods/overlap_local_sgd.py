"""Overlap Local SGD (J. Wang, H. Liang, G. Joshi, arXiv 2002.09539): an anchor is averaged while all agents train on.

Every tau updates, with x_i the parameters of agent i and z the anchor, which is the joint model::

    x_i <- x_i - alpha (x_i - z)       z as of the exchange before; then the snapshot of x_i goes out
    R    = the mean of the snapshots
    v   <- mu v + R - z
    z   <- z + v                       it arrives while the agents make the next tau updates

An agent hands over the model and receives it once in tau updates: M bytes up and M down. A lost agent is missing in one mean;
its replacement starts at the anchor.

Departures: nobody waits. An agent that is faster than the others, or than the averaging, makes more than tau updates before its
next snapshot, and the mean is weighted by updates (eq. 9 of the MPCA paper). At the first exchange no anchor has arrived, and
nobody is pulled; the authors' code pulls to x_0 then. Buffers are not pulled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpca.algorithm import JointShard, Outer, outer_step
from mpca.algorithm.averaging import Vector
from mpca.checks import refused
from mpca.methods.agent_side import AgentSide, How, When
from mpca.methods.base import Method

__all__ = ["OverlapLocalSGD"]


@dataclass(frozen=True)
class OverlapLocalSGD(Method):
    """Agents never stop, and are pulled once an exchange. The whole model is one shard.

    Example:
        >>> OverlapLocalSGD(alpha=0.5).alpha_for(tau=10.0, agents=8)
        0.5
    """

    name: ClassVar[str] = "overlap-local-sgd"

    tau: int = 10
    """Optimiser updates between two exchanges, 1 or more; they must take less than `cluster.cycle_deadline`."""
    alpha: float = 0.6
    """Share of the distance to the anchor taken at an exchange, in [0, 1]; the authors' number."""
    momentum: float = 0.7
    """mu of the anchor, in [0, 1); the authors' number."""

    def __post_init__(self) -> None:
        if self.tau < 1:
            raise refused("method.tau", self.tau, "must be 1 or more")
        if not 0 <= self.alpha <= 1:
            raise refused("method.alpha", self.alpha, "must lie in [0, 1]")
        if not 0 <= self.momentum < 1:
            raise refused("method.momentum", self.momentum, "must lie in [0, 1)")

    @property
    def outer(self) -> Outer:
        return Outer(1.0, self.momentum, nesterov=False)

    def merge(self, state: JointShard, mean: Vector, v_into: Vector | None = None) -> JointShard:
        return outer_step(state, mean, self.outer, into=mean, v_into=v_into)

    @property
    def agent_side(self) -> AgentSide:
        return AgentSide(How.MIX, When.BEFORE_SNAPSHOT, snapshot_after=self.tau)

    def alpha_for(self, tau: float, agents: int) -> float:
        return self.alpha
