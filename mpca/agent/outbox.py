"""What an agent that asks by itself sends of a shard: its state, its change, or the change coded by a threshold.

Numbers only: a trainer gives the state of a shard, and this makes of it, in the same array, what the method wants
(`AgentSide.sends`). Base and residual are of the agent's parameters alone; buffers are sent as they are. They lie in host
memory, whatever device the model is on, since what is sent lies there too.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from mpca.algorithm import encode
from mpca.methods import AgentSide, Sends

__all__ = ["Outbox"]

_Array = npt.NDArray[np.float32]


class Outbox:
    """Of one agent.

    Args:
        side: what is sent, and how a threshold adapts.
        bounds: shard edges in elements; local tensors' shards behind the model's own do not matter.
        parameters: elements before this index are parameters.
        shards: of the model.
        read: reads x_0 of a shard into an array.
        runs: element-major in the vector, of which each has a threshold of its own; an agent is one run.
    """

    def __init__(
        self,
        side: AgentSide,
        bounds: list[int],
        parameters: int,
        shards: int,
        read: Callable[[int, _Array], None],
        runs: int = 1,
    ) -> None:
        self._side = side
        self._base: list[_Array] = []  # by shard: the parameters when the agent took a joint state last
        self._residual: list[_Array] = []
        start = side.threshold.start if side.threshold is not None else 0.0
        self._thresholds = [np.full(runs, start) for _ in range(shards)]
        for shard, (a, b) in enumerate(pairwise(bounds[: shards + 1] if side.sends is not Sends.STATE else [])):
            x0 = np.empty(b - a, np.float32)
            read(shard, x0)
            self._base.append(x0[: max(0, min(b, parameters) - a)].copy())
            self._residual.append(np.zeros_like(self._base[-1]))

    def fill(self, shard: int, out: _Array) -> None:
        """Turn the state of a shard into what is sent of it, in place."""
        if self._side.sends is Sends.STATE:
            return
        base = self._base[shard]
        change = out[: base.size]
        change -= base
        if self._side.threshold is not None:
            self._residual[shard] += change
            thresholds = self._thresholds[shard]
            residual, coded = (one.reshape(-1, thresholds.size) for one in (self._residual[shard], change))
            coded[:] = encode(residual, thresholds)
            self._adapt(residual, thresholds, coded)

    def installed(self, shard: int, data: _Array, mode: str) -> None:
        """A joint state has replaced the agent's; `mode` "replace": for another reason than an exchange, so nothing is owed."""
        if self._side.sends is Sends.STATE or shard >= len(self._base):
            return
        self._base[shard][:] = data[: self._base[shard].size]
        if mode == "replace":
            self._residual[shard][:] = 0

    def _adapt(self, residual: _Array, thresholds: npt.NDArray[np.float64], coded: _Array) -> None:
        rule = self._side.threshold
        assert rule is not None
        if rule.clip:
            limits = (rule.clip * thresholds).astype(np.float32)
            np.clip(residual, -limits, limits, out=residual)
        if rule.least > 0 or rule.most < 1:
            shares = np.count_nonzero(coded, axis=0) / max(1, len(coded))
            low, high = shares < rule.least, shares > rule.most
            thresholds[low] *= rule.decay
            thresholds[high] /= rule.decay
