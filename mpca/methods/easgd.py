"""Asynchronous elastic averaging (S. Zhang, A. Choromanska, Y. LeCun: *Deep learning with Elastic Averaging SGD*, algorithm 1).

After every tau updates of its own, an agent hands its parameters x_i to the driver, whose joint model is x~. Both move towards
each other by the same share, and both from where the other was before (MPCA paper, eq. 2 and 3)::

    x_i <- x_i - alpha (x_i - x~)
    x~  <- x~ + alpha (x_i - x~)           alpha = beta / K, beta = 0.9

The pull is symmetric: an exchange leaves x~ plus the sum of all x_i as it was. The driver serves one agent at a time; nobody
else waits. With `loss_cut` the period adapts as in DeepSpark (its algorithm 1): an agent adds up the losses of its updates,
and asks when the sum exceeds the cut. So the period grows as the loss falls.

An agent hands over the model and receives it once in tau updates: M bytes up and M down, and the driver's link carries K times
as much, so tau must be K times the updates that one exchange takes. What a lost agent had learnt since its last exchange is
lost, less what it had moved x~ before; nobody waits for it. Its replacement starts at the joint model.

Departures: the agent waits until the driver has its parameters too, and not for the download alone. In the paper it computes
alpha (x_i - x~) itself and sends that while it trains on; the numbers are the same. DeepSpark's server takes no turns, so
that its updates overwrite each other; here they do not. An agent's buffers are not pulled; those of the joint model move 1/K
of the way to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpca.algorithm import JointShard
from mpca.algorithm.averaging import Vector
from mpca.checks import refused
from mpca.methods.agent_side import AgentSide, How, When
from mpca.methods.base import Served
from mpca.methods.server import Server, with_buffers

__all__ = ["EASGD"]


@dataclass(frozen=True)
class EASGD(Server):
    """Elastic averaging, one agent at a time.

    Example:
        >>> EASGD().share(agents=9)
        0.1
    """

    name: ClassVar[str] = "easgd"

    tau: int = 10
    """Optimiser updates of an agent between two of its exchanges, 1 or more. Zhang has up to 64, DeepSpark 100 to 500."""
    beta: float = 0.9
    """K times alpha, in (0, 1]: how far the joint model moves when every agent has exchanged once."""
    loss_cut: float = 0.0
    """An agent asks before tau updates when the losses that its train function logs (`mpca.log(loss=...)`) add up to more than
    this; 0: it does not. With a large tau it is DeepSpark's adaptive period."""

    def __post_init__(self) -> None:
        if self.tau < 1:
            raise refused("method.tau", self.tau, "must be 1 or more")
        if not 0 < self.beta <= 1:
            raise refused("method.beta", self.beta, "must lie in (0, 1]")
        if not 0 <= self.loss_cut < float("inf"):
            raise refused("method.loss_cut", self.loss_cut, "must be 0 or more")

    @property
    def agent_side(self) -> AgentSide:
        return AgentSide(How.MIX, When.ON_ARRIVAL, asks_after=self.tau, asks_at_loss=self.loss_cut)

    def share(self, agents: int) -> float:
        """alpha, for K agents."""
        return self.beta / agents

    def serve(self, state: JointShard, sent: Vector, staleness: int, agents: int) -> Served:
        x, v, k = state
        p, share = v.size, self.share(agents)
        moved = sent[:p] - x[:p]
        moved *= share
        moved += x[:p]
        return Served(JointShard(with_buffers(moved, state, sent, agents), v, k + 1), x, share)
