"""Which contributions have moved too far: each is compared with how far the others have moved.

Every snapshot comes with its Euclidean distance from the newest joint state that the agent was handed (x_0 before the
first). Contribution :math:`i` of a shard, with distance :math:`d_i` and :math:`\\tau_i > 0` updates, is left out when

.. math::
    d_i > L \\cdot \\max(\\mathrm{median}_j(d_j), m, s) \\cdot \\max(r, 1 / r), \\quad
    r = \\tau_i / \\mathrm{median}_j(\\tau_j)

where :math:`j` are the other contributors of this exchange (with fewer than three of them also those of the shard's last
five exchanges), :math:`L` is ``cluster.norm_limit``, :math:`m` is how far the joint model itself moved with the shard's newest
exchange, and :math:`s` is the norm of its shard. Each term has its reason:

* :math:`s`: agents that have come to rest hardly move. An agent that joins them with data of its own moves several times the
  model's norm, and is well. By the first two terms alone such an agent was left out for ever.
* :math:`m`: at the start of training all agents move far. Only the pull, which is strong then, keeps them near the joint
  state. An agent that joins is not pulled yet, and moves as far as the joint model does.
* The factor of tau: an agent of another speed is far away, and is well. At the first exchange an agent that loaded its data in
  no time has taken hundreds of updates, and the others one. From an agent that is ten times slower than the others the joint
  model, which the others make, runs away.

The limit is not for a run that diverges as a whole. When all (two or more) contributions exceed it, the training has changed (a
step of the learning rate) and no single agent has, so all of them enter. The limit does not see an agent that grows slowly
enough to drag the others along. Pure: numbers in, reasons out.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import isfinite, sqrt
from statistics import median

import numpy as np

from mpca.algorithm.averaging import Vector
from mpca.wire.orders import Frozen

__all__ = ["EXCHANGES", "FEW", "NormLimit", "measure"]

log = logging.getLogger("mpca.cycle")

#: With fewer other contributors than `FEW`, those of the last `EXCHANGES` exchanges of the shard are looked at too.
FEW = 3
EXCHANGES = 5

Moved = tuple[float, int]  # distance, tau
#: Elements of one step of `measure`: what lies between stays in the processor's cache.
_BLOCK = 1 << 16


def measure(before: Vector, after: Vector) -> tuple[float, float]:
    """Measure a shard of the joint model for `NormLimit.joint`.

    Args:
        before: float32[n].
        after: float32[n].

    Returns:
        How far it moved, and its norm; infinite where float32 cannot square an element.
    """
    moved = size = 0.0
    with np.errstate(over="ignore"):  # beyond 1e19: infinite, and no measure
        for start in range(0, after.size, _BLOCK):
            old, new = before[start : start + _BLOCK], after[start : start + _BLOCK]
            moved += float(np.linalg.norm(new - old)) ** 2
            size += float(np.linalg.norm(new)) ** 2
    return sqrt(moved), sqrt(size)


class NormLimit:
    """The limit of one run, with how far contributions moved in the last exchanges of each shard.

    Args:
        limit: L; 0: everything passes.
        shards: of the model.
    """

    def __init__(self, limit: float, shards: int) -> None:
        self._limit, self._shards = limit, shards
        self._cycle = -1  # the cycle that is judged
        self._now: dict[int, Moved] = {}  # its contributions by agent, over all its freezes
        self._distances: list[float] = []  # theirs, in order
        self._taus: list[int] = []
        self._joint: dict[int, tuple[float, str]] = {}  # by shard: the larger of m and s, and its name
        self._past: dict[int, dict[int, Moved]] = {}  # by cycle: the contributions that passed

    def joint_moved(self, shard: int, distance: float, size: float = 0.0) -> None:
        """An exchange moved the joint model of a shard.

        Args:
            shard: its number.
            distance: m, how far the exchange moved it.
            size: s, the norm that it has now.
        """
        told = ((distance, "the joint model moved"), (size, "is the joint model's norm"))
        self._joint[shard] = max((one for one in told if isfinite(one[0])), default=(0.0, ""))

    def judge(self, cycle: int, frozen: Mapping[int, Frozen]) -> dict[int, str]:
        """Judge the contributions to a cycle.

        A cycle that is frozen again is judged by all that was handed over for it, so no verdict changes because another agent
        was left out.

        Args:
            cycle: its number.
            frozen: what was handed over, by agent.

        Returns:
            Agents whose contribution must not enter, each with the reason.
        """
        if not self._limit:
            return {}
        if cycle != self._cycle:
            self._cycle, self._now = cycle, {}
        self._now |= {agent: (one.distance, one.tau) for agent, one in frozen.items() if one.finite and one.tau > 0}
        oldest = cycle - EXCHANGES * self._shards
        self._past = {one: moved for one, moved in self._past.items() if one >= oldest}
        self._distances = sorted(moved for moved, _ in self._now.values())
        self._taus = sorted(tau for _, tau in self._now.values())
        judged = {agent: self._beyond(agent) for agent in self._now}
        beyond = {agent: reason for agent, reason in judged.items() if reason}
        if len(beyond) > 1 and len(beyond) == len(judged):
            log.warning("cycle=%d every contribution has moved further than cluster.norm_limit allows: %s", cycle, beyond)
            beyond = {}
        self._past[cycle] = {agent: moved for agent, moved in self._now.items() if agent not in beyond}
        return beyond

    def _beyond(self, agent: int) -> str:
        """Why the agent's contribution exceeds the limit; empty when it does not, or there is nothing to compare with."""
        distance, tau = self._now[agent]
        if len(self._now) > FEW:
            theirs, updates = _median_without(self._distances, distance), _median_without(self._taus, tau)
        else:
            others = [moved for other, moved in self._now.items() if other != agent]
            for cycle in range(self._cycle - EXCHANGES * self._shards, self._cycle, self._shards):
                others += [moved for other, moved in self._past.get(cycle, {}).items() if other != agent]
            if not others:
                return ""
            theirs, updates = median([moved for moved, _ in others]), median([taken for _, taken in others])
        allowed, what = self._joint.get(self._cycle % self._shards, (0.0, ""))
        typical = max(theirs, allowed)
        if not typical:
            return ""
        ratio = distance / typical
        speed = max(tau / updates, updates / tau)
        log.debug("cycle=%d agent=%d distance=%g ratio=%g speed=%g", self._cycle, agent, distance, ratio, speed)
        if ratio <= self._limit * speed:
            return ""
        whose = f"the others moved in {updates:g}" if typical == theirs else what
        return (
            f"norm limit: it moved {distance:.4g} in {tau} updates, {ratio:.4g} times the {typical:.4g} that {whose}; "
            f"cluster.norm_limit={self._limit:g}"
        )


def _median_without(ordered: Sequence[float], one: float) -> float:
    """The median of what is left of two sorted values or more when one of them is taken out: nothing is sorted anew for it."""
    gap, rest = bisect_left(ordered, one), len(ordered) - 1

    def at(index: int) -> float:
        return ordered[index + (index >= gap)]

    return at(rest // 2) if rest % 2 else (at(rest // 2 - 1) + at(rest // 2)) / 2
