"""DiLoCo: many local updates, then one step of an outer Nesterov optimiser on the joint model (A. Douillard and others).

Every H updates, with x_i the parameters of agent i and x~ the joint model (arXiv 2311.08105, algorithm 1)::

    d  = the mean of x_i, less x~          the negative of the paper's outer gradient
    v  <- mu v + d
    x~ <- x~ + eta (d + mu v)
    x_i = x~                               all agents wait for it

Streaming DiLoCo (arXiv 2501.18512) is `fragments` above 1 or `overlap`. Each of S fragments does so every H updates, H / S
updates after the one before. Agents do not wait: when the fragment arrives, some updates later, x_i <- m x_i + (1 - m) x~,
with the mixing factor m.

An agent hands over M / S bytes and receives as many, S times in H updates. A lost agent is missing in the means that it does
not answer; its replacement starts at the joint model. In the blocking form all wait until a lost agent is known as lost.

Departures: the mean is weighted by updates (eq. 9 of the MPCA paper); these are equal with H updates each. Fragments are equal
in bytes, and not strided layers. A fragment is applied when it has come, not after a fixed number of updates. Nothing is sent
in 4 bits. BatchNorm's buffers are those of the mean. Eager updates (arXiv 2502.12996) are not here, since each agent would need
an outer optimiser of its own; with `correction` and `outer_lr`, method mpca keeps an agent's newest updates in another way.
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
        if not 1 <= self.phases <= min(self.fragments, 3):
            raise refused("method.phases", self.phases, f"must lie between 1 and {min(self.fragments, 3)}")

    @property
    def shards(self) -> int:
        return self.fragments

    @property
    def outer(self) -> Outer:
        return Outer(self.outer_lr, self.outer_momentum)

    def merge(self, state: JointShard, mean: Vector) -> JointShard:
        return outer_step(state, mean, self.outer)

    @property
    def agent_side(self) -> AgentSide:
        if not self.overlap:
            return AgentSide(How.REPLACE, When.ON_ARRIVAL, hold_after=self.period)
        how = How.MIX if self.mixing else How.REPLACE
        return AgentSide(how, When.ON_ARRIVAL, snapshot_after=self.period // self.fragments)

    def alpha_for(self, tau: float, agents: int) -> float:
        return 1 - self.mixing if self.agent_side.how is How.MIX else 0.0

    def beta_at(self, exchange: int) -> float:
        return self.outer_lr
