"""How alpha, beta and gamma change over a run. Positions are per shard and come from a backup like the model itself.

Two counters: the *version* v of a joint state is the number of exchanges that made it (0 is x_0); an *exchange* k is
numbered from 0, so exchange k makes version k + 1.
"""

from __future__ import annotations

__all__ = ["alpha_at", "beta_at", "gamma_at"]


def alpha_at(version: int, alpha: float, start: float = 0.5, decay: float = 0.7) -> float:
    r"""Strength of the pull towards an installed joint state (section 6.3: 0, then high, then decayed to its value).

    .. math:: \alpha_0 = 0, \qquad \alpha_v = \max(\alpha,\ \text{start} \cdot \text{decay}^{\,v-1}), \quad v \ge 1

    Reading: v is the version of the shard's installed joint state and not a count of the agent's own installs, so
    neither a joiner nor a resumed run goes through the violent beginning again.

    Args:
        version: v, 0 before the first joint state arrives.
        alpha: value to arrive at, in [0, 1].
        start: value at the first joint state.
        decay: factor per version.

    Example:
        >>> [round(alpha_at(v, 0.05), 4) for v in (0, 1, 2, 3, 100)]
        [0.0, 0.5, 0.35, 0.245, 0.05]
    """
    if version < 1:
        return 0.0
    return max(alpha, start * decay ** (version - 1))


def beta_at(exchange: int, beta: float, ramp: int = 20) -> float:
    r"""Rate at which an exchange replaces the joint model (section 4.5, 7.1: 1.0 to 0.9 "using a constant factor").

    .. math:: \beta_k = \max(\beta,\ \beta^{\,k / \text{ramp}})

    Reading: geometric, per shard, k = 0 at its first exchange; with `ramp` 0 it is `beta` from the start.

    Example:
        >>> [round(beta_at(k, 0.9), 4) for k in (0, 10, 20, 21)]
        [1.0, 0.9487, 0.9, 0.9]
    """
    if ramp <= 0 or exchange >= ramp:
        return beta
    return beta ** (exchange / ramp)


def gamma_at(exchange: int, gamma: float, ramp: int = 20) -> float:
    r"""How far the state that an exchange made is projected ahead (section 4.3: ramped up from a low value).

    .. math:: \gamma_k = \gamma\,\min(1,\ k / \text{ramp})

    Reading: linear from 0 over the first `ramp` exchanges of a shard; `ramp` 0 is the paper's figure 10a.

    Example:
        >>> [round(gamma_at(k, 0.7), 3) for k in (0, 10, 20, 21)]
        [0.0, 0.35, 0.7, 0.7]
    """
    if ramp <= 0 or exchange >= ramp:
        return gamma
    return gamma * max(exchange, 0) / ramp
