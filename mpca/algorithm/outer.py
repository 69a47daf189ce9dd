"""An outer optimiser on the joint model of one shard: it takes what the agents have moved for a gradient.

It stands where eq. 8 and eq. 4 stand in MPCA SGD (`joint.update`), and keeps its momentum where they keep the trajectory: both
are directions in which the joint model moves. Buffers have no momentum; they are those of the mean.
"""

from __future__ import annotations

from typing import NamedTuple

from mpca.algorithm.averaging import Vector
from mpca.algorithm.joint import JointShard, add_scaled, blend, check_mean

__all__ = ["Outer", "outer_step"]


class Outer(NamedTuple):
    """The numbers of an outer optimiser."""

    rate: float
    momentum: float
    nesterov: bool = True  # False: heavy ball


def outer_step(state: JointShard, mean: Vector, outer: Outer) -> JointShard:
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
    after = mean[:p] - x[:p]
    add_scaled(after, v, outer.momentum)
    moved = blend(x, mean, outer.rate)
    moved[p:] = mean[p:]
    if outer.momentum:
        add_scaled(moved[:p], after if outer.nesterov else v, outer.rate * outer.momentum)
    return JointShard(moved, after, k + 1)
