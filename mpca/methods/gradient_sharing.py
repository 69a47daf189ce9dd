"""Gradient sharing (N. Strom: *Scalable distributed DNN training using commodity GPU cloud computing*, 2015; Deeplearning4j).

After every update, agent i adds what it changed to a residual r_i, and sends of each element only a threshold, with a sign::

    r_i <- r_i + x_i - (x~ as agent i took it)
    s_i = theta sign(r_i) where |r_i| >= theta, else 0;   r_i <- r_i - s_i
    m  <- mu m + s_i;  x~ <- x~ + m  (the sum of all s_i), or + m / K (their mean);   x_i = x~, for this agent alone

What was sent and the residual are the sum of the agent's updates: nothing is lost, some of it comes later. Strom codes
gradients and has the optimiser behind the exchange: there the agents' optimiser is plain SGD, whose changes are -lr times
gradients, and `momentum` is the server's. Deeplearning4j codes updates, made by whatever optimiser the agent has, and adds
them: `momentum` 0, the default. The threshold is in units of a parameter's change, so a gradient's times lr. Both take the
sum. The threshold may adapt, as Deeplearning4j's: it falls when a smaller share than `least` was sent, and grows when a
larger one than `most` was. `clip` cuts residuals off, after which the identity above does not hold.

Coded, an agent would hand over about one number for each element that it sends (density M bytes up, and what the others sent
down). Here nothing is packed: vectors of float32 travel, M bytes up and M down after each update, and the driver's link
carries K times as much. A lost agent costs its residual; nobody waits for it. Its replacement starts at the joint model with
none.

Departures: the sum goes through the driver, which takes turns; Strom's and Deeplearning4j's agents send to each other. An
agent's own model is the joint one, as Strom's, with no part of its residual. Deeplearning4j clips every five updates, to five
thresholds; here after each, if at all. Buffers are sent as they are; those of the joint model move 1/K of the way to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpca.algorithm import JointShard
from mpca.algorithm.averaging import Vector
from mpca.checks import refused
from mpca.methods.agent_side import AgentSide, How, Sends, Threshold, When
from mpca.methods.base import Served
from mpca.methods.server import Server, with_buffers

__all__ = ["GradientSharing"]


@dataclass(frozen=True)
class GradientSharing(Server):
    """Coded updates of all agents, added up by the driver.

    Example:
        >>> GradientSharing(threshold=0.01).agent_side.threshold.start
        0.01
    """

    name: ClassVar[str] = "gradient-sharing"

    threshold: float = 1e-3
    """theta at the beginning, above 0: the size of the smallest change that is sent. Deeplearning4j has 0.001; 4 lr was best in
    simulated runs with Adam."""
    least: float = 0.0
    """Share of elements, in [0, 1], below which theta falls; 0: never. Deeplearning4j has 0.0001."""
    most: float = 1.0
    """Share of elements, in [0, 1], above which theta grows; 1: never. Deeplearning4j has 0.01."""
    decay: float = 0.95
    """Factor by which theta falls, or its inverse by which it grows, in (0, 1)."""
    clip: float = 0.0
    """Residuals are cut off at this many thresholds; 0: never."""
    mean: bool = False
    """Take the mean of the agents' changes in place of the sum."""
    momentum: float = 0.0
    """mu of the server's SGD, in [0, 1), for agents with plain SGD (Strom); 0: updates are added (Deeplearning4j)."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold < float("inf"):
            raise refused("method.threshold", self.threshold, "must be above 0")
        for key in ("least", "most"):
            if not 0 <= getattr(self, key) <= 1:
                raise refused(f"method.{key}", getattr(self, key), "must lie in [0, 1]")
        if self.least > self.most:
            raise refused("method.least", self.least, f"must be at most method.most = {self.most}")
        if not 0 < self.decay < 1:
            raise refused("method.decay", self.decay, "must lie in (0, 1)")
        if self.clip < 0:
            raise refused("method.clip", self.clip, "must be 0 or more")
        if not 0 <= self.momentum < 1:
            raise refused("method.momentum", self.momentum, "must lie in [0, 1)")

    @property
    def agent_side(self) -> AgentSide:
        code = Threshold(self.threshold, self.least, self.most, self.decay, self.clip)
        return AgentSide(How.REPLACE, When.ON_ARRIVAL, asks_after=1, sends=Sends.THRESHOLD, threshold=code)

    def serve(self, state: JointShard, sent: Vector, staleness: int, agents: int) -> Served:
        x, v, k = state
        p, share = v.size, 1 / agents if self.mean else 1.0
        moved = v * self.momentum
        moved += sent[:p]
        after = JointShard(with_buffers(x[:p] + moved * share, state, sent, agents), moved if self.momentum else v, k + 1)
        return Served(after, after.x, share)
