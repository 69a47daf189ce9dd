"""An asynchronous parameter server (DistBelief's Downpour SGD; MXNet's dist_async): agents push changes and take what is there.

After every n updates of its own, agent i sends what they changed since it took the joint model x~ last, and takes the new
one::

    d_i = x_i - (x~ as agent i took it)
    m  <- mu m + d_i;  x~ <- x~ + scale m       x_i = x~, for this agent alone

DistBelief (Dean and others, 2012) fetches and pushes every n_fetch and n_push steps, 1 in its experiments, and its server
runs Adagrad. MXNet pushes each gradient, and the server runs the optimiser. With n = 1 and plain SGD, d_i is -lr times the
gradient, so the server's optimiser is SGD with momentum mu. Other optimisers of the agents keep their state, and the server
adds their updates. A change is as stale as there were exchanges of others since, K - 1 in a ring. With K = 1 it is `single`.

An agent hands over M bytes and receives M in n updates, and the driver's link carries K times as much. A lost agent costs the
updates that it had not sent; nobody waits for it. Its replacement starts at the joint model.

Departures: one server, the driver, that takes turns; DistBelief's and MXNet's are cut into shards on many machines. What is
pushed is a change of parameters, rounded as their difference. Push and fetch are one exchange. Buffers of the joint model
move 1/K of the way to the agent's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpca.algorithm import JointShard
from mpca.algorithm.averaging import Vector
from mpca.checks import refused
from mpca.methods.agent_side import AgentSide, How, Sends, When
from mpca.methods.base import Served
from mpca.methods.server import Server, with_buffers

__all__ = ["AsyncPS"]


@dataclass(frozen=True)
class AsyncPS(Server):
    """Changes to a server, as they come.

    Example:
        >>> AsyncPS(n_push=4).agent_side.asks_after
        4
    """

    name: ClassVar[str] = "async-ps"

    n_push: int = 1
    """Optimiser updates of an agent between two of its exchanges, 1 or more."""
    scale: float = 1.0
    """Share of a change that counts, in (0, 1]: 1 / K makes of K changes their mean."""
    momentum: float = 0.0
    """mu of the server's SGD, in [0, 1); the agents' optimiser should then be plain SGD."""

    def __post_init__(self) -> None:
        if self.n_push < 1:
            raise refused("method.n_push", self.n_push, "must be 1 or more")
        if not 0 < self.scale <= 1:
            raise refused("method.scale", self.scale, "must lie in (0, 1]")
        if not 0 <= self.momentum < 1:
            raise refused("method.momentum", self.momentum, "must lie in [0, 1)")

    @property
    def agent_side(self) -> AgentSide:
        return AgentSide(How.REPLACE, When.ON_ARRIVAL, asks_after=self.n_push, sends=Sends.CHANGE)

    def serve(self, state: JointShard, sent: Vector, staleness: int, agents: int) -> Served:
        x, v, k = state
        p = v.size
        moved = v * self.momentum
        moved += sent[:p]
        after = JointShard(with_buffers(x[:p] + moved * self.scale, state, sent, agents), moved if self.momentum else v, k + 1)
        return Served(after, after.x, self.scale)
