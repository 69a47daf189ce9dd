"""The joint model of one shard on the driver: blend (eq. 8), trajectory (eq. 4), extrapolation (eq. 5).

State is an immutable tuple: `init` makes it, `update` returns the next one. Buffers (BatchNorm statistics) come after the
parameters of a shard; they are blended like parameters but have no trajectory, so the trajectory is shorter than the
state by the buffers. What is evaluated and saved is `x`, never the extrapolated state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpca.algorithm.averaging import Vector

__all__ = ["JointShard", "add_scaled", "blend", "check_mean", "extrapolate", "init", "trajectory", "update"]

#: Elements of one step, 256 KiB. The product of a whole shard would be a third array of its size on the driver, and would leave
#: the processor's cache before it is added.
_BLOCK = 1 << 16
#: The same where four arrays are read and written together.
FUSED = 1 << 14


class JointShard(NamedTuple):
    """Joint state of one shard after k exchanges; k is also its version. Who may write to its arrays: `driver.joint`."""

    x: Vector  # float32[n]: the parameters of the shard, then its buffers
    v: Vector  # float32[p], p <= n: trajectory of the parameters, or momentum of an outer optimiser
    k: int  # exchanges that moved it; 0 is x_0


def init(x0: Vector, parameters: int) -> JointShard:
    r"""The state before any exchange: :math:`\tilde{x}_0 = x_0`, which is `x0` itself, and :math:`\tilde{v}_0 = 0`.

    Example:
        >>> init(np.float32([1, 2, 3]), parameters=2)
        JointShard(x=array([1., 2., 3.], dtype=float32), v=array([0., 0.], dtype=float32), k=0)
    """
    if not 0 <= parameters <= x0.size:
        raise ValueError(f"parameters must lie in 0..n: parameters={parameters}, n={x0.size}")
    return JointShard(x0, np.zeros_like(x0[:parameters]), 0)


def blend(x: Vector, mean: Vector, beta: float) -> Vector:
    r"""Move the joint model towards the average of the local ones.

    .. math:: \tilde{x}_t = (1 - \beta)\,\tilde{x}_{t-1} + \beta\, R(x^{1 \dots K})       (MPCA SGD, eq. 8)

    Args:
        x: :math:`\tilde{x}_{t-1}`, float32[n].
        mean: :math:`R`, float32[n], of `averaging.weighted_sum`.
        beta: rate at which the joint model is replaced, in [0, 1]; at 1 the result is `mean` to the bit.

    Returns:
        float32[n], a new array.

    Example:
        >>> blend(np.float32([0, 8]), np.float32([4, 0]), beta=0.75)
        array([3., 2.], dtype=float32)
    """
    moved = mean * beta
    add_scaled(moved, x, 1.0 - beta)
    return moved


def trajectory(v: Vector, before: Vector, after: Vector, delta: float) -> Vector:
    r"""Update the trajectory of the joint model, a moving average of its changes.

    .. math:: \tilde{v}_t = \delta\,\tilde{v}_{t-1} + (1 - \delta)(\tilde{x}_t - \tilde{x}_{t-1})      (MPCA SGD, eq. 4)

    Readings: :math:`\tilde{v}_0 = 0`, the first difference counts, and there is no bias correction. The arguments are
    joint states, never the extrapolated :math:`\tilde{x}^*`, which would feed the extrapolation back into itself.

    Args:
        v: :math:`\tilde{v}_{t-1}`, float32[p].
        before: parameters of :math:`\tilde{x}_{t-1}`, float32[p].
        after: parameters of :math:`\tilde{x}_t`, float32[p].
        delta: share of the old trajectory that stays, in [0, 1].

    Returns:
        float32[p], a new array.

    Example:
        >>> trajectory(np.float32([4]), np.float32([1]), np.float32([3]), delta=0.5)
        array([3.], dtype=float32)
    """
    step = after - before
    step *= 1.0 - delta
    add_scaled(step, v, delta)
    return step


def extrapolate(state: JointShard, gamma: float, into: Vector | None = None) -> Vector:
    r"""Estimate the joint model at the time when agents work with it; the driver broadcasts the result.

    .. math:: \tilde{x}^*_{t+\gamma} = \tilde{x}_t + \gamma\,\tilde{v}_t       (MPCA SGD, eq. 5)

    Buffers have no trajectory: there the result is `state.x`.

    Args:
        state: joint state of one shard.
        gamma: how far ahead in units of the trajectory; 0 switches it off, 1 is one exchange.
        into: float32[n], where the result goes; None: into a new array.

    Returns:
        float32[n]; `into` or the new array, or `state.x` itself when gamma is 0.

    Example:
        >>> extrapolate(JointShard(np.float32([1, 5]), np.float32([2]), k=3), gamma=0.5)
        array([2., 5.], dtype=float32)
    """
    if gamma == 0:
        return state.x
    x, v, p = state.x, state.v, state.v.size
    ahead = np.empty_like(x) if into is None else into
    for start in range(0, p, FUSED):
        end = min(start + FUSED, p)
        step = ahead[start:end]
        np.multiply(v[start:end], gamma, out=step)
        step += x[start:end]
    ahead[p:] = x[p:]
    return ahead


def update(
    state: JointShard, mean: Vector, beta: float, delta: float, into: Vector | None = None, v_into: Vector | None = None
) -> JointShard:
    """One exchange: blend `mean` in (eq. 8), then follow the trajectory (eq. 4).

    Bit for bit what `blend` and `trajectory` give, in one pass over blocks: whole arrays in between are new pages of memory
    each time, which cost twice as much as the arithmetic.

    Args:
        state: before; its arrays stay as they are, but for `v_into`.
        mean: as of `blend`.
        beta: as of `blend`.
        delta: as of `trajectory`.
        into: float32[n], the array of the new state's `x`; it may be `mean`. None: a new array.
        v_into: float32[p], the array of the new state's `v`; it may be the old one. None: a new array.

    Raises:
        ValueError: `mean` is of another shape or dtype than the state.

    Example:
        >>> update(init(np.float32([0, 0]), parameters=1), np.float32([2, 2]), beta=1.0, delta=0.5)
        JointShard(x=array([2., 2.], dtype=float32), v=array([1.], dtype=float32), k=1)
    """
    check_mean(state, mean)
    x, v, k = state
    p = v.size
    moved = np.empty_like(x) if into is None else into
    after = np.empty_like(v) if v_into is None else v_into
    room = np.empty(min(FUSED, x.size), x.dtype)
    for start in range(0, x.size, FUSED):
        end = min(start + FUSED, x.size)
        old, new, product = x[start:end], moved[start:end], room[: end - start]
        np.multiply(mean[start:end], beta, out=new)
        np.multiply(old, 1.0 - beta, out=product)
        new += product
        q = min(end, p) - start  # of these, so many are parameters
        if q > 0:
            step = after[start : start + q]
            np.multiply(v[start : start + q], delta, out=product[:q])  # first: `step` may lie over v
            np.subtract(new[:q], old[:q], out=step)
            step *= 1.0 - delta
            step += product[:q]
    return JointShard(moved, after, k + 1)


def check_mean(state: JointShard, mean: Vector) -> None:
    """Raise ValueError if `mean` is of another shape or dtype than the state."""
    x = state.x
    if mean.shape != x.shape or mean.dtype != x.dtype:
        raise ValueError(f"mean is not of this shard: {mean.dtype}{mean.shape}, state {x.dtype}{x.shape}")


def add_scaled(total: Vector, vector: Vector, factor: float) -> None:
    """Add ``factor * vector`` to the first elements of `total`, in place."""
    for start in range(0, vector.size, _BLOCK):
        end = start + _BLOCK
        total[start : min(end, vector.size)] += vector[start:end] * factor
