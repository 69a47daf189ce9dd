"""Rules that keep a local model near the joint one: the pull (eq. 7), its regulariser form (eq. 6), delay-corrected install.

All three take the parameters of a shard, never its buffers, and work in float32: alpha (x - x*) vanishes in bf16. The
agent does `pull` for all shards at once, fused in torch; these are the reference for it.
"""

from __future__ import annotations

from math import inf

from mpca.algorithm.averaging import Vector

__all__ = ["correct", "pull", "tilt"]


def pull(local: Vector, target: Vector, alpha: float) -> Vector:
    r"""Displace a local model towards the projected joint model, before the gradient.

    .. math:: x^i \leftarrow x^i - \alpha\,(x^i - \tilde{x}^*_{t+\gamma})        (MPCA SGD, eq. 7)

    The displacement is kept: gradient and update start from the displaced model. Once per optimiser update, not per
    micro-batch or closure. Looks like `tilt`, which bends the gradient instead and is far more sensitive to alpha.

    Args:
        local: :math:`x^i`, float32[n], changed in place.
        target: :math:`\tilde{x}^*`, the newest installed joint state of the same shard, float32[n].
        alpha: share of the distance taken per update, in [0, 1].

    Returns:
        `local`.

    Raises:
        ValueError: shapes differ, or alpha is outside [0, 1].

    Example:
        >>> pull(np.array([0.0, 2.0]), np.array([1.0, 1.0]), alpha=0.5)
        array([0.5, 1.5])
    """
    _check(local, target)
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is outside [0, 1]: {alpha}")
    distance = local - target
    distance *= alpha
    local -= distance
    return local


def tilt(gradient: Vector, local: Vector, target: Vector, alpha: float) -> Vector:
    r"""Add the gradient of the distance to the joint model: the regulariser form of the penalty.

    .. math:: g \leftarrow g + \alpha\,(x^i - \tilde{x}^*), \quad
              \text{the gradient of } \tfrac{\alpha}{2} \|x^i - \tilde{x}^*\|^2           (MPCA SGD, eq. 6)

    The term :math:`\lambda \|x^i\|^2` of eq. 6 is the optimiser's own coupled weight decay (torch's ``weight_decay`` is
    :math:`2 \lambda`). Looks like `pull`, which is eq. 7 and what the methods use.

    Args:
        gradient: :math:`\nabla \mathcal{L}(x^i)`, float32[n], changed in place.
        local: :math:`x^i`, float32[n].
        target: :math:`\tilde{x}^*`, float32[n].
        alpha: weight of the regulariser, 0 or more. It is not a share, so it may be above 1.

    Returns:
        `gradient`.

    Raises:
        ValueError: shapes differ, or alpha is negative or not finite.

    Example:
        >>> tilt(np.array([0.0, 0.0]), np.array([0.0, 2.0]), np.array([1.0, 1.0]), alpha=0.5)
        array([-0.5,  0.5])
    """
    _check(local, target)
    if not 0 <= alpha < inf:
        raise ValueError(f"alpha must be 0 or more: {alpha}")
    if gradient.shape != local.shape:
        raise ValueError(f"shapes differ: gradient {gradient.shape}, local {local.shape}")
    distance = local - target
    distance *= alpha
    gradient += distance
    return gradient


def correct(local: Vector, arrival: Vector, snapshot: Vector) -> Vector:
    r"""Take the joint state, and keep the updates since the snapshot that it answers (beyond the paper).

    .. math:: x^i \leftarrow x^i + (\tilde{x}^* - y^i)

    Order at an interruption: **install, then snapshot** (the elastic `pull` does it the other way round, section 5.2).
    Let d(m) be the deviation of snapshot m from a joint model at rest, and no gradient. Install first: snapshot m + 1 is
    :math:`y(m) + \tilde{x}^* - y(m)`, so d(m+1) = 0. Snapshot first: the correction that answers snapshot m - 1 is
    applied only after snapshot m was taken, so :math:`y(m+1) = y(m) + \tilde{x}^* - y(m-1)`, that is
    d(m+1) = d(m) - d(m-1), whose characteristic roots have modulus 1: it turns with period six and never damps.

    Args:
        local: :math:`x^i`, float32[n], changed in place.
        arrival: :math:`\tilde{x}^*` of this shard, float32[n].
        snapshot: :math:`y^i`, this agent's snapshot of the shard that `arrival` was made from, float32[n].

    Returns:
        `local`.

    Raises:
        ValueError: shapes differ.

    Example:
        >>> correct(local=np.array([5.0]), arrival=np.array([3.0]), snapshot=np.array([4.0]))
        array([4.])
    """
    if local.shape != arrival.shape or local.shape != snapshot.shape:
        raise ValueError(f"shapes differ: local {local.shape}, arrival {arrival.shape}, snapshot {snapshot.shape}")
    local += arrival - snapshot
    return local


def _check(local: Vector, target: Vector) -> None:
    if local.shape != target.shape:
        raise ValueError(f"shapes differ: local {local.shape}, target {target.shape}")
