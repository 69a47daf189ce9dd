"""The weighted average of contributions (eq. 9), with one arithmetic that Java, numpy and the simulator share.

Sums are float32 with weights in float64, in the order given, which never depends on arrival: the same contributors give
the same bytes wherever the sum is made. Who may contribute (alive, in time, finite) is decided by the driver, not here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["Vector", "local_mean", "weighted_sum"]

Vector = npt.NDArray[np.floating]


def weighted_sum(parts: Sequence[Vector], weights: Sequence[float]) -> Vector | None:
    r"""Sum parts with weights normalised to one.

    .. math:: R = \sum_e w_e\, p_e, \qquad w_e = W_e / \sum_j W_j              (MPCA SGD, eq. 9)

    where part :math:`p_e` is the mean of executor e's own agents and :math:`W_e` the sum of their :math:`\tau`, so that
    the nested mean is eq. 9 over all agents. Arithmetic: ``acc = float32(acc + w * float64(part))`` from zeros.

    Args:
        parts: float32[n] each (float64[n] gives float64[n]; integers are summed in float64).
        weights: float64, not negative, one a part.

    Returns:
        float32[n], a new array; None when the weights sum to 0: then no new version is made.

    Raises:
        ValueError: no parts, another number of weights than parts, shapes that differ, or a negative weight.

    Example:
        >>> weighted_sum([np.float32([0, 4]), np.float32([4, 8])], [3, 1])
        array([1., 5.], dtype=float32)
    """
    if not parts or len(parts) != len(weights):
        raise ValueError(f"one weight for each of one or more parts: parts={len(parts)}, weights={len(weights)}")
    total = 0.0
    for weight in weights:  # not sum(): from Python 3.12 on it compensates, which Java does not
        if not weight >= 0:
            raise ValueError(f"weights must not be negative: {list(weights)}")
        total += float(weight)
    if total == 0:
        return None
    first = parts[0]
    dtype = first.dtype if first.dtype.kind == "f" else np.dtype(np.float64)
    acc = np.zeros(first.shape, dtype)
    wide = np.empty(first.shape, np.float64)
    for part, weight in zip(parts, weights, strict=True):
        if part.shape != acc.shape:
            raise ValueError(f"shapes differ: {part.shape} and {acc.shape}")
        np.multiply(part, float(weight) / total, out=wide, dtype=np.float64)
        np.add(acc, wide, out=acc, dtype=np.float64, casting="same_kind")
    return acc


def local_mean(snapshots: Sequence[Vector], taus: Sequence[float]) -> Vector | None:
    r"""What leaves an executor: the mean of its own agents' snapshots weighted by their updates.

    .. math:: p_e = \frac{1}{\sum_{i \in e} \tau^i} \sum_{i \in e} \tau^i x^i   (eq. 9 over the agents of one executor)

    The arithmetic is that of `weighted_sum`, but a single snapshot is returned unchanged, even if its tau is 0: a part of
    weight 0 then still has defined bytes.

    Args:
        snapshots: float32[n] each, in agent order, only those that are finite.
        taus: optimiser updates of each agent since its last snapshot of this shard.

    Example:
        >>> local_mean([np.float32([1, 2]), np.float32([3, 4])], [1, 1])
        array([2., 3.], dtype=float32)
    """
    if len(snapshots) == 1 and len(taus) == 1:
        return snapshots[0]
    return weighted_sum(snapshots, taus)
