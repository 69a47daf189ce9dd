"""A change coded by a threshold: few elements, each one of two values; what is lost waits as a residual (N. Strom, 2015)."""

from __future__ import annotations

import numpy as np

from mpca.algorithm.averaging import Vector

__all__ = ["encode"]


def encode(total: Vector, threshold: float | Vector) -> Vector:
    r"""Code what is to be sent, and keep the rest.

    .. math:: s_j = \theta\,\mathrm{sign}(r_j) \text{ if } |r_j| \ge \theta, \text{ else } 0; \qquad r \leftarrow r - s

    With :math:`r` the residual of earlier rounds plus the new change. Nothing is lost: what was sent and the residual add up to
    all changes so far.

    Args:
        total: :math:`r`, float32[n]; afterwards it is the new residual.
        threshold: :math:`\theta`, above 0; or one for each element of the last axis.

    Returns:
        :math:`s`, of the form of `total`, a new array.

    Raises:
        ValueError: the threshold is not above 0.

    Example:
        >>> total = np.float32([0.5, -3, 1])
        >>> encode(total, threshold=1.0).tolist(), total.tolist()
        ([0.0, -1.0, 1.0], [0.5, -2.0, 0.0])
    """
    theta = np.asarray(threshold, total.dtype)
    if not (theta > 0).all():
        raise ValueError(f"the threshold must be above 0: {threshold}")
    sent: Vector = np.where(np.abs(total) >= theta, np.copysign(theta, total), total.dtype.type(0))
    total -= sent
    return sent
