"""How alpha, beta and gamma change over a run. Positions of beta and gamma are per shard and come from a backup.

An *exchange* k of a shard is numbered from 0 and makes version k + 1 of its joint state; version 0 is x_0. The beginning of
alpha is counted in an agent's own updates.
"""

from __future__ import annotations

__all__ = ["alpha_at", "alpha_for", "beta_at", "gamma_at"]


def alpha_at(updates: int | None, alpha: float, start: float = 0.5, decay: float = 0.7) -> float:
    r"""Strength of the pull towards an installed joint state (section 6.3: 0, then high, then decayed to its value).

    .. math:: \alpha_u = \max(\alpha,\ \text{start} \cdot \text{decay}^{\,u})

    Reading: the paper names no unit of the decay; u is the agent's own updates since it installed version 1 of the shard.
    Counted in versions, the strong pull of the beginning would last for hundreds of updates if an exchange takes ninety. An
    agent that begins at a later version has no such beginning, so neither an agent that joins nor a resumed run repeats it.
    Before the first joint state arrives there is no pull.

    Args:
        updates: u; None for an agent that has never installed version 1.
        alpha: value to arrive at, in [0, 1].
        start: value at the first joint state.
        decay: factor per update.

    Example:
        >>> [round(alpha_at(u, 0.05), 4) for u in (0, 1, 2, 3, 100, None)]
        [0.5, 0.35, 0.245, 0.1715, 0.05, 0.05]
    """
    return alpha if updates is None else max(alpha, start * decay**updates)


def alpha_for(tau: float) -> float:
    r"""The final alpha if the user gives none: an agent takes half of the distance between two refreshes of a shard.

    .. math:: \alpha = \frac{1}{2 n}

    Beyond the paper, whose values (0.05 at n = 15, 0.005 at n = 90) come from a search for each n. At most 0.5.

    Args:
        tau: n, the mean number of updates between two refreshes of a shard, measured in its last exchange.

    Example:
        >>> alpha_for(20.0), alpha_for(0.0)
        (0.025, 0.5)
    """
    return 0.5 / max(1.0, tau)


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
    return float(beta ** (exchange / ramp))


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
