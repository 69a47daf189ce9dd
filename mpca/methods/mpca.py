"""MPCA SGD: coordinated asynchronous training in one, two or three phases (sections 4.1 to 4.6 of the paper).

Agents never stop. The joint model is blended (eq. 8) and projected along its trajectory (eq. 4, 5), and pulls them a little
before every gradient (eq. 7)::

    R  = sum of tau_i x_i / sum of tau_i           (eq. 9)     over the agents that are in the exchange of the shard
    x~ = (1 - beta) x~ + beta R                    (eq. 8)
    v  = delta v + (1 - delta) (change of x~)      (eq. 4)
    x* = x~ + gamma v                              (eq. 5)     this is broadcast
    x_i -= alpha (x_i - x*)                        (eq. 7)     before every gradient

In a cycle an agent hands over one shard and receives one: M / S bytes up and down, for a model of M bytes. An agent that is
lost is missing in the sums of the cycles that it does not answer, and nobody waits for it; its replacement starts at the
joint model, so what it had trained since its last snapshot is lost. Departures from the paper: docs/deviations.md.

Other forms, one key each. Of the paper: `regulariser` adds alpha (x_i - x*) to every gradient (eq. 6), after any clipping, and
without effect where an optimiser takes a closure; `replace` takes x* as the agent's own (figure 10b shows why that is worse).
Beyond it: `correction` adds x* less the snapshot that it answers, once, without a pull (LOSCAR-SGD's merge, arXiv 2605.20866);
`outer_lr` moves x~ by an outer Nesterov step in place of eq. 8, 4 and 5, with the pull or with `correction`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from mpca.algorithm import JointShard, Outer, alpha_for, beta_at, extrapolate, gamma_at, outer_step, update
from mpca.algorithm.averaging import Vector
from mpca.algorithm.sharding import LEAST_SHARDS
from mpca.checks import refused
from mpca.methods.agent_side import AgentSide, How, When
from mpca.methods.base import Method, check_outer

__all__ = ["MPCA"]

AUTO = "auto"
EXCHANGE = "exchange"
_UNITS = ("update", EXCHANGE)
_INSTALLS = ("exchange", "arrival")
_STAGES = 3  # broadcast, reduce, prepare: "only three atomic operations" (section 4.2)
#: The default of `shards`: a number, or AUTO.
_SHARDS: int | str = 3


class _Undecided(int):
    """A number of shards to begin with, until the driver has decided one."""

    def __reduce__(self) -> tuple[Any, ...]:  # copies and pickles stay undecided
        return (_Undecided, (int(self),))


@dataclass(frozen=True)
class MPCA(Method):
    """Multi-phase coordinated asynchronous SGD.

    Example:
        >>> method = MPCA(alpha=0.1)
        >>> method.phases, method.alpha_for(tau=20.0, agents=8), MPCA().alpha_for(tau=20.0, agents=8)
        (3, 0.1, 0.025)
    """

    name: ClassVar[str] = "mpca"

    alpha: float | str = field(default=AUTO, metadata={"word": AUTO})
    """Share of the distance to the projected joint model taken before every gradient, in [0, 1] (eq. 7); "auto": 0.5 / n,
    with n the mean of updates between the last two exchanges of the shard, as the driver measured it."""
    beta: float = 0.9
    """Rate at which an exchange replaces the joint model, in [0, 1] (eq. 8)."""
    beta_ramp: int = 20
    """Exchanges of a shard over which beta falls from 1.0."""
    gamma: float = 0.7
    """How far the joint model is projected, in exchanges (eq. 5); 0 switches it off; below 1 with `correction` or `replace`."""
    gamma_ramp: int = 20
    """Exchanges of a shard over which gamma rises from 0."""
    delta: float = 0.8
    """Share of the old trajectory that stays, in [0, 1) (eq. 4)."""
    alpha_start: float = 0.5
    """alpha at the first joint state, in [0, 1] (section 6.3)."""
    alpha_decay: float = 0.7
    """Factor by which alpha falls to its value, in [0, 1]."""
    alpha_unit: str = "update"
    """When it falls: at each "update" of an agent, or at each "exchange" of the shard (`mpca-paper`)."""
    shards: int | str = field(default=_SHARDS, metadata={"word": AUTO, "kind": int})  # type: ignore[assignment]  # see below
    """Shards of the model; more than three make every exchange shorter and the overhead larger (section 4.2). "auto": from 3 to
    24, as the driver decides before the first step (`algorithm.shards_for`); until then it is a 3."""
    phases: int = 0
    """Stages that overlap, at most min(shards, 3); 0 takes that largest number and is replaced by it."""
    weighted: bool = True
    """Weigh what agents hand over by their updates (eq. 9); false: the plain mean of all that made any (figure 10c)."""
    layer_aligned: bool = False
    """Cut shards at tensor edges instead of equal in bytes."""
    install: str = "arrival"
    """When an agent takes an arrival in: "arrival", between two batches (section 5.3), or "exchange", at its next
    interruption (section 5.2, figure 12), for which the driver waits with shard n+1 until its download has ended. In the
    simulator their losses differ by a twentieth at most (tests/sim/test_install.py); "arrival" has the shorter period."""
    correction: bool = False
    """Delay-corrected install instead of the pull (beyond the paper; alpha is not used)."""
    replace: bool = False
    """Hard replacement instead of the pull: an agent takes an arrival as its own, and loses its updates since the snapshot."""
    regulariser: bool = False
    """Eq. 6 instead of eq. 7: the pull is a part of the gradient, so the optimiser decides what becomes of it. alpha is then
    the weight of a regulariser, a number of 0 or more: what is right depends on the learning rate."""
    outer_lr: float = 0.0
    """Rate of an outer Nesterov step on the joint model (beyond the paper: DiLoCo's); 0: eq. 8, 4 and 5 instead. Above 0, beta,
    gamma and delta are not used."""
    outer_momentum: float = 0.0
    """Momentum of that step, in [0, 1)."""

    def __post_init__(self) -> None:
        if self.regulariser:
            if isinstance(self.alpha, str) or not 0 <= self.alpha < float("inf"):
                raise refused("method.alpha", self.alpha, "must be a number, 0 or more, with method.regulariser")
        elif self.alpha != AUTO and not (isinstance(self.alpha, int | float) and 0 <= self.alpha <= 1):
            raise refused("method.alpha", self.alpha, f'must lie in [0, 1], or be "{AUTO}"')
        for key in ("beta", "alpha_start", "alpha_decay"):
            if not 0 <= getattr(self, key) <= 1:
                raise refused(f"method.{key}", getattr(self, key), "must lie in [0, 1]")
        if not 0 <= self.delta < 1:
            raise refused("method.delta", self.delta, "must lie in [0, 1): at 1 the trajectory never moves")
        if not 0 <= self.gamma < float("inf"):
            raise refused("method.gamma", self.gamma, "must be 0 or more")
        forms = [key for key in ("regulariser", "correction", "replace") if getattr(self, key)]
        if len(forms) > 1:
            raise refused(f"method.{forms[1]}", True, f"cannot go with method.{forms[0]}: set one of them to false")
        for key, what in (("correction", "delay-corrected"), ("replace", "hard replacement")):
            if getattr(self, key) and self.gamma >= 1:
                raise refused(
                    "method.gamma",
                    self.gamma,
                    f"must be below 1 with method.{key} ({what}): the projection feeds back into itself and "
                    f"diverges; set method.gamma to 0.7 or less, or method.{key} to false",
                )
        if self.outer_lr or self.outer_momentum:
            check_outer(self.outer_lr, self.outer_momentum)
        for key in ("beta_ramp", "gamma_ramp", "phases"):
            if getattr(self, key) < 0:
                raise refused(f"method.{key}", getattr(self, key), "must be 0 or more")
        if self.shards == AUTO:
            object.__setattr__(self, "shards", _Undecided(LEAST_SHARDS))
        if isinstance(self.shards, str) or self.shards < 1:
            raise refused("method.shards", self.shards, f'must be 1 or more, or "{AUTO}"')
        most = min(self.shards, _STAGES)
        if self.phases > most:
            raise refused(
                "method.phases",
                self.phases,
                f"must be at most {most} with method.shards = {self.shards}: a phase needs a shard of its own, and "
                f"there are {_STAGES} stages; raise method.shards or lower method.phases",
            )
        if self.install not in _INSTALLS:
            raise refused("method.install", self.install, f"must be one of {', '.join(_INSTALLS)}")
        if self.alpha_unit not in _UNITS:
            raise refused("method.alpha_unit", self.alpha_unit, f"must be one of {', '.join(_UNITS)}")
        if self.phases == 0:
            object.__setattr__(self, "phases", most)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | ({"shards": AUTO} if self.auto_shards else {})

    @property
    def auto_shards(self) -> bool:
        return isinstance(self.shards, _Undecided)

    def cut(self, shards: int) -> MPCA:
        return replace(self, shards=shards)

    @property
    def outer(self) -> Outer | None:
        return Outer(self.outer_lr, self.outer_momentum) if self.outer_lr else None

    @property
    def direction(self) -> str:
        return "the trajectory" if self.outer is None else super().direction

    def for_agents(self) -> dict[str, Any]:
        # alpha comes with every joint state; here it says that the method is a valid one.
        return super().for_agents() | ({"alpha": self.alpha} if self.regulariser else {})

    def merge(self, state: JointShard, mean: Vector, v_into: Vector | None = None) -> JointShard:
        if self.outer is not None:
            return outer_step(state, mean, self.outer, into=mean, v_into=v_into)
        return update(state, mean, self.beta_at(state.k), self.delta, into=mean, v_into=v_into)

    def outgoing(self, state: JointShard, into: Vector | None = None) -> Vector:
        return extrapolate(state, self.gamma_at(state.k - 1), into)

    @property
    def _how(self) -> How:
        if self.regulariser:
            return How.TILT
        return How.CORRECT if self.correction else How.REPLACE if self.replace else How.PULL

    @property
    def agent_side(self) -> AgentSide:
        # Elastic: snapshot, then install (section 5.2). Delay-corrected needs the other order: `penalty.correct`.
        exchange = When.BEFORE_SNAPSHOT if self.correction else When.AFTER_SNAPSHOT
        return AgentSide(
            self._how,
            exchange if self.install == "exchange" else When.ON_ARRIVAL,
            alpha_start=self.alpha_start,
            alpha_decay=self.alpha_decay,
            decay_by_version=self.alpha_unit == EXCHANGE,
        )

    def alpha_for(self, tau: float, agents: int) -> float:
        if self.correction or self.replace:
            return 0.0
        return alpha_for(tau) if isinstance(self.alpha, str) else self.alpha

    def beta_at(self, exchange: int) -> float:
        return self.outer_lr or beta_at(exchange, self.beta, self.beta_ramp)

    def gamma_at(self, exchange: int) -> float:
        return 0.0 if self.outer_lr else gamma_at(exchange, self.gamma, self.gamma_ramp)
