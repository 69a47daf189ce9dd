"""The joint model's invariants (I2, I5, I6): it is the model before plus exactly the listed contributions, weighted by tau.

`check.Checker` reports the contributions and says where they come from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mpca.algorithm import JointShard
from mpca.driver.joint import JointModel
from mpca.methods.base import Method
from mpca.methods.mpca import MPCA

__all__ = ["JointCheck", "close_to"]

# Versions of a shard that are remembered. While an agent that joins downloads one, a server makes many.
_KEPT, _KEPT_OF_EXCHANGES = 4, 100


class JointCheck:
    """Holds the joint states of the ledger's cycles beside the contributions that the ledger lists.

    Args:
        method: of the run.
        broken: raises the violation of an invariant, by its name and what is wrong.
    """

    def __init__(self, method: Method, broken: Callable[[str, str], None]) -> None:
        self.outer = method.outer
        self.delta = method.delta if isinstance(method, MPCA) and self.outer is None else None
        self.states: list[Any] = []  # by shard, as seen last; copies
        self._seen: list[Any] = []  # the joint model's own
        self.committed: dict[tuple[int, int], Any] = {}  # (shard, version) -> state
        self.model: Callable[[], JointModel | None] = lambda: None
        #: With a codec: by how much the rests have grown by a cycle's sum, float64; None: there is no codec.
        self.rested: Callable[[int], np.ndarray] | None = None
        self._method, self._broken = method, broken
        self._x0: np.ndarray | None = None  # until the first look behind a cut
        self._records: dict[int, deque[tuple[int, int, np.ndarray, float]]] = {}
        self._merges: dict[int, deque[tuple[Any, Any]]] = {}

    def cut(self) -> None:
        """The model is cut anew: from now on its states are those of other shards, of the same x_0."""
        if all(state is not None for state in self.states):
            self._x0 = np.concatenate([state.x for state in self.states])
        self.states.clear()
        self.committed.clear()

    def listed(self, cycle: int, shard: int, handed: Iterable[tuple[int, np.ndarray]]) -> None:
        """The ledger lists the contributions of a cycle.

        Args:
            cycle: its number.
            shard: that it reduced.
            handed: of each contributor tau and the shard, float32.
        """
        total, weight, size = None, 0, 0.0
        for tau, data in handed:
            counts = tau if self._method.weighted else min(tau, 1)
            part = data.astype(np.float64) * counts
            total = part if total is None else total + part
            weight += counts
            size = max(size, float(np.abs(data).max(initial=0.0)))
        if not weight:
            return
        assert total is not None
        waiting = self._records.setdefault(shard, deque())
        waiting.append((cycle, weight, total, size))
        if len(waiting) > 1 and not self._merges.get(shard):
            self._broken("I2", f"cycle {waiting[0][0]} is in the ledger and never came into the joint model")

    def ended(self) -> None:
        """The driver has closed: ledger and joint model must be of the same cycles."""
        for shard, records in self._records.items():
            self._compare(shard)
            if records:
                self._broken("I2", f"cycle {records[0][0]} is in the ledger and never came into the joint model")
        for shard, merges in self._merges.items():
            if merges:
                self._broken("I2", f"version {merges[0][1].k} of shard {shard} is of no cycle in the ledger")

    def look(self) -> None:
        """Look at what has changed since the last call."""
        joint, states = self.model(), self.states
        if joint is None:
            return
        if self._x0 is not None:
            if not np.array_equal(joint.vector(), self._x0) or any(joint.versions()):
                self._broken("cut", f"x_0 is {joint.vector()} at {joint.versions()} when it is cut anew; it was {self._x0}")
            self._x0 = None
        if not states:
            states += [None] * len(joint.states)
            self._seen = list(states)
        for shard, state in enumerate(joint.states):
            if state is not None and state is not self._seen[shard]:
                self._seen[shard], kept = state, state._replace(x=state.x.copy(), v=state.v.copy())
                self._moved(shard, states[shard], kept)
                states[shard] = kept

    def _moved(self, shard: int, before: Any, after: Any) -> None:
        if not np.isfinite(after.x).all():
            self._broken("I5", f"shard {shard} is not finite at version {after.k}")
        self.committed[(shard, after.k)] = after
        if before is None or after.k == 0:
            return
        if after.k != before.k + 1:
            self._broken("I6", f"shard {shard} goes from version {before.k} to {after.k}")
        self.committed.pop((shard, after.k - (_KEPT_OF_EXCHANGES if self._method.asks else _KEPT)), None)
        if self._method.asks:  # `check_server` looks at these
            return
        self._merges.setdefault(shard, deque()).append((before, after))
        self._compare(shard)

    def _compare(self, shard: int) -> None:
        merges, records = self._merges.get(shard), self._records.get(shard)
        while merges and records:
            before, after = merges.popleft()
            cycle, weight, total, size = records.popleft()
            mean, largest, rate = self._mean(before, after)
            if self.rested is not None:
                mean = mean + self.rested(cycle)  # joint model and all rests conserve the sum
            # multiplied by its weight it is a sum of whole numbers
            rounding = weight * max(size, largest, 1.0) * 2.0**-20 / rate
            error = np.abs(mean * weight - total)
            if error.size and error.max() >= max(rounding, 0.0):
                worst = int(error.argmax())
                self._broken(
                    "I2",
                    f"cycle {cycle}, shard {shard}, element {worst}: the joint model took in {mean[worst] * weight:.3f} / "
                    f"{weight}, the listed contributions are {total[worst]:.3f} / {weight}",
                )
            whole = self.rested is None and rounding < 0.5 and np.array_equal(total, np.rint(total))
            if whole and not np.array_equal(np.rint(mean * weight), total):
                self._broken("I2", f"cycle {cycle}, shard {shard}: another whole number than the listed contributions")
            if self.delta is not None:
                p = before.v.size
                moved = after.x[:p].astype(np.float64) - before.x[:p].astype(np.float64)
                if not close_to(after.v, self.delta * before.v + (1 - self.delta) * moved):
                    self._broken("I2", f"cycle {cycle}, shard {shard}: the trajectory is not that of the joint states")

    def _mean(self, before: JointShard, after: JointShard) -> tuple[np.ndarray, float, float]:
        """R, computed back from two joint states; the largest number that was rounded for it; what it was divided by."""
        x, moved = before.x.astype(np.float64), after.x.astype(np.float64)
        if self.outer is None:  # eq. 8
            beta = self._method.beta_at(before.k)
            return (moved - (1 - beta) * x) / beta, float(np.abs(x).max(initial=0.0)), beta
        p = before.v.size
        rate, momentum, nesterov = self.outer
        kept = momentum * before.v.astype(np.float64)
        step = (moved - x)[:p] / rate  # d + mu (mu v + d), or mu v + d
        d = (step - momentum * kept) / (1 + momentum) if nesterov else step - kept
        largest = max(float(np.abs(one).max(initial=0.0)) for one in (x, kept, moved))
        if not close_to(after.v / (largest + 1), (kept + d) / (largest + 1)):
            self._broken("I2", f"version {after.k}: the momentum is not that of the joint states")
        return np.concatenate([x[:p] + d, moved[p:]]), largest, min(rate, 1.0)


def close_to(mine: np.ndarray, theirs: np.ndarray) -> bool:
    """Whether numbers are equal to float32, after a few operations."""
    if not mine.size:
        return True
    scale = float(np.abs(theirs).max()) + 1.0
    return bool(np.abs(mine - theirs).max() <= scale * 1e-5)
