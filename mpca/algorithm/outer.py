"""An outer optimiser on the joint model of one shard: it takes what the agents have moved for a gradient.

It stands where eq. 8 and eq. 4 stand in MPCA SGD (`joint.update`), and keeps its momentum where they keep the trajectory: both
are directions in which the joint model moves. Buffers have no momentum; they are those of the mean.

`Eager` is an agent's own outer optimiser beside it, which does not wait for the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpca.algorithm.averaging import Vector
from mpca.algorithm.joint import FUSED, JointShard, add_scaled, check_mean

__all__ = ["Eager", "Outer", "arrived", "begin_eager", "handed_over", "outer_step"]


class Outer(NamedTuple):
    """The numbers of an outer optimiser."""

    rate: float
    momentum: float
    nesterov: bool = True  # False: heavy ball


def outer_step(
    state: JointShard, mean: Vector, outer: Outer, into: Vector | None = None, v_into: Vector | None = None
) -> JointShard:
    r"""One exchange with an outer optimiser.

    .. math:: d_t = R(x^{1 \dots K}) - \tilde{x}_{t-1}, \qquad v_t = \mu\,v_{t-1} + d_t

    .. math:: \tilde{x}_t = \tilde{x}_{t-1} + \eta\,(d_t + \mu\,v_t) \quad \text{(Nesterov: DiLoCo, arXiv 2311.08105)}

    .. math:: \tilde{x}_t = \tilde{x}_{t-1} + \eta\,v_t \quad \text{(heavy ball: Overlap Local SGD, arXiv 2002.09539)}

    The papers' outer gradient is -d, and their momentum -v. Nesterov's form is that of torch's SGD. Looks like `joint.update`:
    without momentum the parameters are the same, with eta for beta of eq. 8, but buffers are those of the mean. At eta = 1
    without momentum the result is `mean` to the bit.

    Args:
        state: joint state before; v is the momentum.
        mean: R, float32[n], of `averaging.weighted_sum`.
        outer: eta, mu, and which of the two forms.
        into: as of `joint.update`.
        v_into: as of `joint.update`.

    Raises:
        ValueError: `mean` is of another shape or dtype than the state.

    Example:
        >>> before = JointShard(np.float32([1, 1]), np.float32([2]), k=4)
        >>> outer_step(before, np.float32([3, 3]), Outer(rate=1.0, momentum=0.5))
        JointShard(x=array([4.5, 3. ], dtype=float32), v=array([3.], dtype=float32), k=5)
        >>> outer_step(before, np.float32([3, 3]), Outer(rate=1.0, momentum=0.5, nesterov=False))
        JointShard(x=array([4., 3.], dtype=float32), v=array([3.], dtype=float32), k=5)
    """
    check_mean(state, mean)
    x, v, k = state
    p = v.size
    moved = np.empty_like(x) if into is None else into
    after = np.empty_like(v) if v_into is None else v_into
    room, other = np.empty((2, min(FUSED, p)), x.dtype)
    for start in range(0, p, FUSED):  # in one pass, as in `joint.update`, and for the same reason
        end = min(start + FUSED, p)
        old, direction, new = x[start:end], v[start:end], moved[start:end]
        step, product = room[: end - start], other[: end - start]
        np.subtract(mean[start:end], old, out=step)
        np.multiply(direction, outer.momentum, out=product)
        step += product
        np.multiply(mean[start:end], outer.rate, out=new)
        np.multiply(old, 1.0 - outer.rate, out=product)
        new += product
        if outer.momentum:
            np.multiply(step if outer.nesterov else direction, outer.rate * outer.momentum, out=product)
            new += product
        after[start:end] = step
    moved[p:] = mean[p:]
    return JointShard(moved, after, k + 1)


class Eager(NamedTuple):
    """What an agent with eager outer updates keeps of the parameters of one shard. Nobody writes to its arrays."""

    joint: Vector  # x~: the newest joint state that has come, float32[p]
    start: Vector  # x~_i: where it went on when it last handed over
    v: Vector  # v_i: the momentum of what it handed over before `joint` came
    d: Vector  # d_i: what it has handed over since; no joint state that has come contains it
    share: float  # of d that is its own: 1 / K, as it came with the joint state; 0: none has come


def begin_eager(joint: Vector) -> Eager:
    """The state of an agent that begins at a joint state, float32[p], or that is replaced by it."""
    zeros = np.zeros_like(joint)
    return Eager(joint, joint, zeros, zeros, 0.0)


def handed_over(state: Eager, local: Vector, outer: Outer) -> tuple[Eager, Vector]:
    r"""An eager outer update, when an agent hands over (arXiv 2502.12996).

    .. math:: \tilde{d}_i(t) = \tfrac{1}{K} d_i(t) + \left(d(t-1) - \tfrac{1}{K} d_i(t-1)\right), \qquad d(t) = R(d_i(t))

    The paper's agent gives this to an outer Nesterov optimiser of its own, whose model is where it goes on. That optimiser is
    linear, and all d up to t - 1 make the joint model of t - 1. So the agent's model is that one and a K-th of a step of an
    optimiser that takes its own d_i alone:

    .. math:: d_i(t) = x_i - \tilde{x}_i(t-1), \qquad v_i(t) = \mu\,v_i(t-1) + d_i(t)

    .. math:: \tilde{x}_i(t) = \tilde{x}(t-1) + \tfrac{\eta}{K}\left(d_i(t) + \mu\,v_i(t)\right)

    An agent that hands over again before a joint state has come adds to the same d_i(t). Before any has come it goes on where
    it is; the paper's goes on from the formula without d(t-1).

    Args:
        state: before.
        local: :math:`x_i`, float32[p].
        outer: eta and mu, Nesterov's form.

    Returns:
        The state after; the agent goes on from its `start`. And :math:`\tilde{x}(t-1) + d_i(t)`, whose mean is what
        `outer_step` wants, whatever the weights are.

    Example:
        >>> state = begin_eager(np.float32([1]))._replace(share=0.5)
        >>> after, sent = handed_over(state, np.float32([3]), Outer(rate=1.0, momentum=0.5))
        >>> after.start, sent  # 1 + (2 + 0.5 * 2) / 2
        (array([2.5], dtype=float32), array([3.], dtype=float32))
    """
    d = local - state.start
    d += state.d
    if not state.share:
        return state._replace(start=local.copy(), d=d), state.joint + d
    step = d.copy()
    add_scaled(step, state.v, outer.momentum)
    step *= outer.momentum
    step += d
    step *= state.share * outer.rate
    step += state.joint
    return state._replace(start=step, d=d), state.joint + d


def arrived(state: Eager, joint: Vector, share: float, outer: Outer) -> Eager:
    """A joint state has come: what was handed over is a part of it now. The agent's own parameters stay as they are.

    Args:
        state: before.
        joint: float32[p], kept as it is.
        share: 1 / K of the K agents that it was made of.
        outer: of the joint model.

    Example:
        >>> state = begin_eager(np.float32([1]))._replace(d=np.float32([2]), v=np.float32([4]))
        >>> arrived(state, np.float32([3]), 0.25, Outer(rate=1.0, momentum=0.5)).v
        array([4.], dtype=float32)
    """
    v = state.d.copy()
    add_scaled(v, state.v, outer.momentum)
    return Eager(joint, state.start, v, np.zeros_like(v), share)
