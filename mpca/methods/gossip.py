"""Gossip SGD with push-sum weights (M. Blot, D. Picard, M. Cord, N. Thome: *Gossip training for deep learning*, 2016: GoSGD).

There is no server and no joint model. Agent i has parameters x_i and a weight w_i, 1/K at the beginning. After each update,
with probability p = 1/tau, it halves its weight and sends both to another agent j, which is drawn evenly::

    w_i <- w_i / 2;  send (x_s, w_s) = (x_i, w_i)
    x_j <- (w_j x_j + w_s x_s) / (w_j + w_s);  w_j <- w_j + w_s        when it has come; nobody waits

The sum of all w, and on a flat loss that of all w x, stay as they are, messages on their way included. With `correction` (the
merge by difference of LOSCAR-SGD, arXiv 2605.20866, applied to gossip) a message moves along with its receiver: what j learnt
by its own updates while the message was on its way is added to x_s before. So only the difference between both agents counts,
and a slow link does not pull j back to where it was; both sums are kept as before.

An agent sends M bytes, and receives M on average, in tau updates. A lost agent takes its weight along, and what is on its way
to it or from it: the others' mean loses that share, as is the design. Nobody replaces it.

It is **simulated** only (`mpca compare`), and refused on Spark: executors have no path from agent to agent. What is evaluated
there is the mean of the living agents by their weights, which no single machine has.

Departures: an agent whose last message still leaves it sends none. Buffers are mixed as parameters are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpca.algorithm import JointShard
from mpca.algorithm.averaging import Vector
from mpca.checks import refused
from mpca.methods.agent_side import AgentSide, How, When
from mpca.methods.base import Method

__all__ = ["Gossip"]


@dataclass(frozen=True)
class Gossip(Method):
    """Agents that push to each other.

    Example:
        >>> Gossip.mix(np.float32([1, 4]), np.float32([5, 4]), own_weight=0.375, weight=0.125).tolist()
        [2.0, 4.0]
    """

    name: ClassVar[str] = "gossip"
    simulated: ClassVar[bool] = True

    tau: int = 20
    """Optimiser updates of an agent between two messages, on average, 1 or more; GoSGD's p is 1 / tau."""
    correction: bool = False
    """Add to a message what its receiver learnt while the message was on its way."""

    def __post_init__(self) -> None:
        if self.tau < 1:
            raise refused("method.tau", self.tau, "must be 1 or more")

    @staticmethod
    def mix(x: Vector, sent: Vector, own_weight: float, weight: float) -> Vector:
        """What a receiver has when a message has come: float32[n], a new array.

        Args:
            x: its parameters.
            sent: the sender's, moved along with the receiver if that is asked for.
            own_weight: of the receiver.
            weight: of the message.
        """
        moved: Vector = x + (sent - x) * np.float32(weight / (own_weight + weight))
        return moved

    @property
    def agent_side(self) -> AgentSide:
        return AgentSide(How.REPLACE, When.ON_ARRIVAL)

    def merge(self, state: JointShard, mean: Vector, v_into: Vector | None = None) -> JointShard:
        raise NotImplementedError(f"agents of method {self.name} push to each other: there is no mean")
