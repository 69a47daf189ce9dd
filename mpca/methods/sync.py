"""Synchronous model averaging, as in SparkNet (section 2.1 of its paper) and section 3.1 of MPCA's: stop, average, continue.

After every tau updates, or after a fixed time, with x_i the parameters of agent i::

    x~ = sum of tau_i x_i / sum of tau_i;  x_i = x~        all agents wait for it

With tau = 1, plain SGD and equal batches it is one machine with a K times larger batch (DL4J's identity). An agent hands over
the model and receives it once in tau updates: M bytes up and M down. All wait until a lost agent is known as lost; the mean of
that round lacks it, and its replacement starts at the joint model.

Departure: SparkNet takes the plain mean (`weighted = false`). By default it is weighted by updates (eq. 9 of the MPCA paper).
That makes no difference with tau, and with a fixed time gives a straggler's fewer updates less weight.
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

    The whole model is one shard, since a replaced part of a model would be misaligned with the rest (figure 10b).

    Example:
        >>> Sync(tau=5).agent_side.hold_after
        5
    """

    name: ClassVar[str] = "sync"

    tau: int = 10
    """Optimiser updates between two exchanges, 1 or more."""
    seconds: float = 0.0
    """Time between two exchanges, in place of tau: "in the presence of stragglers, it suffices to replace the fixed number of
    iterations with a fixed length of time" (SparkNet, section 3.2). 0: tau counts. Less than `cluster.cycle_deadline`."""

    weighted: bool = True
    """Weigh the agents by their updates, which differ with `seconds`; false: the plain mean, as in SparkNet."""

    def __post_init__(self) -> None:
        if self.tau < 1:
            raise refused("method.tau", self.tau, "must be 1 or more")
        if not 0 <= self.seconds < float("inf"):
            raise refused("method.seconds", self.seconds, "must be 0 or more")

    def merge(self, state: JointShard, mean: Vector, v_into: Vector | None = None) -> JointShard:
        return JointShard(mean, state.v, state.k + 1)

    @property
    def agent_side(self) -> AgentSide:
        if self.seconds:
            return AgentSide(How.REPLACE, When.ON_ARRIVAL, hold_s=self.seconds)
        return AgentSide(How.REPLACE, When.ON_ARRIVAL, hold_after=self.tau)
