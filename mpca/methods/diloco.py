"""DiLoCo: many local updates, then one step of an outer Nesterov optimiser on the joint model (A. Douillard and others).

Every H updates, with x_i the parameters of agent i and x~ the joint model (arXiv 2311.08105, algorithm 1)::

    d  = the mean of x_i, less x~          the negative of the paper's outer gradient
    v  <- mu v + d
    x~ <- x~ + eta (d + mu v)
    x_i = x~                               all agents wait for it

Streaming DiLoCo (arXiv 2501.18512) is `fragments` above 1 or `overlap`. Each of S fragments does so every H updates, H / S
updates after the one before. Agents do not wait: when the fragment arrives, some updates later, x_i <- m x_i + (1 - m) x~,
with the mixing factor m.

`eager` updates (S. Kale, A. Douillard, Y. Donchev, arXiv 2502.12996) are for exchanges that take as long as H updates. With K
agents and d_i = x_i - x~_i, the agent that hands a fragment over goes on at once, from x~_i, with the rest of a round ago::

    d~_i(t) = d_i(t) / K + (d(t-1) - d_i(t-1) / K)      its part of the current outer gradient, the others' of the one before
    x~_i, v_i <- a Nesterov step from x~_i with d~_i    by an optimiser of the agent's own;  x_i = x~_i
    x~, v <- a Nesterov step from x~ with d(t)          on the driver, as above; d is the mean of d_i

Here the agent adds d_i to the x~ that it has, and hands that over, so that the driver's step is the one above. Of x~ it makes
x~_i again. The optimiser is linear, so that is x~_i(t) = x~(t-1) + eta/K (d_i + mu v_i), with v_i <- mu v_i + d_i
(`algorithm.outer.handed_over`).

Since 1 - 1/K of an outer step comes a round late, many agents need less momentum than those that wait. Say that agents go a
share c of the way to an optimum in a round. With K = 8 a round then multiplies their error by 0.95 to 1.05 at eta = 0.7 and
mu = 0.9 (c from 0.1 to 0.6), and by 0.78 to 0.87 at eta = 0.4 and mu = 0.6.

An agent hands over M / S bytes and receives as many, S times in H updates. A lost agent is missing in the means that it does
not answer; its replacement starts at the joint model. In the blocking form all wait until a lost agent is known as lost.
With `eager` a replacement begins at x~_i = x~ with v_i = 0; of what an agent hands over too late, only its part in v_i is left.

Departures: the mean is weighted by updates (eq. 9 of the MPCA paper); these are equal with H updates each. Fragments are equal
in bytes, and not strided layers. A fragment is applied when it has come, not after a fixed number of updates. Nothing is sent
in 4 bits. BatchNorm's buffers are those of the mean. With `eager`, nobody waits for d(t-1): who is faster than the others, or
than the exchange, makes more than H updates. K are the agents in the newest joint state that the agent has; 1 / K stands for
its weight in the mean, whatever that was. Until a joint state has come, it goes on from its own parameters (the paper's from
x~_i without d(t-1)). It keeps its own buffers. The paper exchanges the whole model; `fragments` are possible too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mpca.algorithm import JointShard, Outer, outer_step
from mpca.algorithm.averaging import Vector
from mpca.checks import refused
from mpca.methods.agent_side import AgentSide, How, When
from mpca.methods.base import Method, check_outer

__all__ = ["DiLoCo"]


@dataclass(frozen=True)
class DiLoCo(Method):
    """DiLoCo, blocking; or streaming, with fragments that overlap with training.

    Example:
        >>> DiLoCo().agent_side.hold_after, DiLoCo(fragments=4, overlap=True).agent_side.snapshot_after
        (100, 25)
    """

    name: ClassVar[str] = "diloco"

    period: int = 100
    """H: updates between two exchanges of a parameter, at least `fragments`. Those between two exchanges of any must take less
    than `cluster.cycle_deadline`. DiLoCo has 500, Streaming DiLoCo 100."""
    outer_lr: float = 0.7
    """eta, in (0, 2]. DiLoCo has 0.7, Streaming DiLoCo 0.4."""
    outer_momentum: float = 0.9
    """mu, in [0, 1)."""
    fragments: int = 1
    """S: parts of the model that are exchanged in turn; above 1 only with `overlap`."""
    overlap: bool = False
    """Whether agents train on while a fragment is exchanged, instead of waiting for it."""
    mixing: float = 0.5
    """With `overlap`: share of its own parameters that an agent keeps when a fragment arrives, in [0, 1); 0: it is replaced."""
    eager: bool = False
    """With `overlap`: eager updates instead of mixing; then outer_momentum should be 0.6 or less. An agent's host needs memory
    for four more models."""
    phases: int = 1
    """Stages that overlap, at most min(fragments, 3). With 1 what arrives is youngest; more carry more over a slow link."""

    def __post_init__(self) -> None:
        check_outer(self.outer_lr, self.outer_momentum)
        if self.fragments < 1:
            raise refused("method.fragments", self.fragments, "must be 1 or more")
        if self.fragments > 1 and not self.overlap:
            raise refused("method.fragments", self.fragments, "must be 1 without overlap; set method.overlap to true")
        if self.period < self.fragments:
            raise refused("method.period", self.period, f"must be at least method.fragments = {self.fragments}")
        if not 0 <= self.mixing < 1:
            raise refused("method.mixing", self.mixing, "must lie in [0, 1): at 1 nothing that arrives would count")
        if self.eager and not self.overlap:
            raise refused("method.eager", True, "only with overlap: set method.overlap to true")
        if not 1 <= self.phases <= min(self.fragments, 3):
            raise refused("method.phases", self.phases, f"must lie between 1 and {min(self.fragments, 3)}")

    @property
    def shards(self) -> int:
        return self.fragments

    @property
    def outer(self) -> Outer:
        return Outer(self.outer_lr, self.outer_momentum)

    def merge(self, state: JointShard, mean: Vector, v_into: Vector | None = None) -> JointShard:
        return outer_step(state, mean, self.outer, into=mean, v_into=v_into)

    @property
    def agent_side(self) -> AgentSide:
        if not self.overlap:
            return AgentSide(How.REPLACE, When.ON_ARRIVAL, hold_after=self.period)
        how = How.EAGER if self.eager else How.MIX if self.mixing else How.REPLACE
        outer = self.outer if self.eager else None
        return AgentSide(how, When.ON_ARRIVAL, snapshot_after=self.period // self.fragments, outer=outer)

    def alpha_for(self, tau: float, agents: int) -> float:
        if self.eager:
            return 1 / agents
        return 1 - self.mixing if self.agent_side.how is How.MIX else 0.0

    def beta_at(self, exchange: int) -> float:
        return self.outer_lr
