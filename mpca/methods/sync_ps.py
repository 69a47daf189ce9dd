"""Synchronous data-parallel SGD with the optimiser on the driver (FireCaffe, CaffeOnSpark, MXNet's dist_sync): no local step.

At every update, with g_i the gradient of agent i at the joint model x~::

    m  <- mu m + the mean of g_i
    x~ <- x~ - lr m                        or, Nesterov: x~ - lr (the mean of g_i + mu m)
    x_i = x~                               all agents wait for it

It is SGD on a batch K times as large. The agents' optimiser must be plain SGD, whose lr and weight decay count: what an agent
hands over is x~ - lr g_i, and the driver takes the difference to x~ for the gradient. (`attach` refuses torch's others.)
An agent hands over M bytes and receives M at each update. All wait until a lost agent is known as lost; that gradient lacks it.

Departures: gradients go to one server, the driver, and the sum is made on the executors before; BigDL keeps a slice of the
optimiser on each node. Only SGD with a constant lr is as on one machine: the momentum has each gradient times the lr that it
came with, and Adam would need a second vector on the driver. The gradients are rounded as differences of float32 parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpca.algorithm import JointShard, Outer, outer_step
from mpca.algorithm.averaging import Vector
from mpca.checks import refused
from mpca.methods.agent_side import AgentSide, How, When
from mpca.methods.base import Method

__all__ = ["SyncPS"]


@dataclass(frozen=True)
class SyncPS(Method):
    """A cycle an update. The agents run plain SGD; the driver has the momentum.

    Example:
        >>> SyncPS(momentum=0.0).agent_side.hold_after
        1
    """

    name: ClassVar[str] = "sync-ps"

    momentum: float = 0.9
    """mu of the driver's SGD, in [0, 1)."""
    nesterov: bool = False
    """Nesterov's form of the momentum instead of the heavy ball."""

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise refused("method.momentum", self.momentum, "must lie in [0, 1)")

    @property
    def outer(self) -> Outer:
        return Outer(1.0, self.momentum, self.nesterov)

    def merge(self, state: JointShard, mean: Vector, v_into: Vector | None = None) -> JointShard:
        return outer_step(state, mean, self.outer, into=mean, v_into=v_into)

    @property
    def agent_side(self) -> AgentSide:
        return AgentSide(How.REPLACE, When.ON_ARRIVAL, hold_after=1)

    @property
    def takes_gradients(self) -> bool:
        return True
