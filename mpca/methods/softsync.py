"""n-softsync (W. Zhang, S. Gupta, X. Lian, J. Liu: *Staleness-aware Async-SGD for Distributed Deep Learning*, IJCAI 2016).

As `async-ps` with a push after each update, but the server collects c = floor(K / n) changes d_i before it moves, and divides
the rate of each by its staleness s_i::

    v  <- v + d_i / max(1, s_i)
    x~ <- x~ + v / c,  v <- 0                   when c changes have come; x_i = x~, for this agent alone

Staleness counts updates of x~, and not exchanges. A change that was made from the newest x~ has staleness 0, and counts as
with 1: it is not divided. n = 1 collects from all agents, as a synchronous server would without waiting for each of them; n =
K is async-ps with rates divided by staleness. In DL4J's words the staleness-dependent factor is lambda_0 / tau, tau >= 1.

The agents' optimiser should be plain SGD, as in the paper; with Adam, what is divided is its update. An agent hands over M
bytes and receives M at each update, and the driver's link carries K times as much. A lost agent costs the update that it had
not sent; the server waits for as many from the others. Its replacement starts at the joint model.

Departures: K is the number of agents that the run wants, whoever is lost. Buffers are not collected: those of the joint model
move 1/K of the way to the agent's with each exchange. A backup in the middle of a collection keeps what was collected as its
trajectory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpca.algorithm import JointShard
from mpca.algorithm.averaging import Vector
from mpca.checks import refused
from mpca.methods.agent_side import AgentSide, How, Sends, When
from mpca.methods.base import Served
from mpca.methods.server import Server, with_buffers

__all__ = ["SoftSync"]


@dataclass(frozen=True)
class SoftSync(Server):
    """A server that collects changes, and divides their rates by their staleness.

    Example:
        >>> SoftSync(n=2).collects(agents=9)
        4
    """

    name: ClassVar[str] = "softsync"

    n: int = 1
    """The server moves when floor(K / n) changes have come, at least 1."""
    by_staleness: bool = True
    """Divide the rate of a change by its staleness."""

    def __post_init__(self) -> None:
        if self.n < 1:
            raise refused("method.n", self.n, "must be 1 or more")

    @property
    def agent_side(self) -> AgentSide:
        return AgentSide(How.REPLACE, When.ON_ARRIVAL, asks_after=1, sends=Sends.CHANGE)

    def collects(self, agents: int) -> int:
        """c, for K agents."""
        return max(1, agents // self.n)

    def serve(self, state: JointShard, sent: Vector, staleness: int, agents: int) -> Served:
        x, v, k = state
        p, c = v.size, self.collects(agents)
        stale = k // c - (k - staleness) // c  # updates of x~ since the agent took it; k counts changes
        share = 1 / max(1, stale) if self.by_staleness else 1.0
        v = v + sent[:p] * share
        parameters = x[:p]
        if (k + 1) % c == 0:
            parameters, v = parameters + v * (1 / c), np.zeros_like(v)
        after = JointShard(with_buffers(parameters, state, sent, agents), v, k + 1)
        return Served(after, after.x, share)
