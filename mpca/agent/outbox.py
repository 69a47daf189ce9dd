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
    """

    def __init__(
        self, side: AgentSide, bounds: list[int], parameters: int, shards: int, read: Callable[[int, _Array], None]
    ) -> None:
        self._side = side
        self._base: list[_Array] = []  # by shard: the parameters when the agent took a joint state last
        self._residual: list[_Array] = []
        self._thresholds = [side.threshold.start if side.threshold is not None else 0.0] * shards
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
            residual = self._residual[shard]
            residual += change
            change[:] = encode(residual, self._thresholds[shard])
            self._adapt(shard, np.count_nonzero(change) / max(1, change.size))

    def installed(self, shard: int, data: _Array, mode: str) -> None:
        """A joint state has replaced the agent's; `mode` "replace": for another reason than an exchange, so nothing is owed."""
        if self._side.sends is Sends.STATE or shard >= len(self._base):
            return
        self._base[shard][:] = data[: self._base[shard].size]
        if mode == "replace":
            self._residual[shard][:] = 0

    def _adapt(self, shard: int, share: float) -> None:
        rule, threshold = self._side.threshold, self._thresholds[shard]
        assert rule is not None
        if rule.clip:
            residual = self._residual[shard]
            np.clip(residual, -rule.clip * threshold, rule.clip * threshold, out=residual)
        if share < rule.least:
            self._thresholds[shard] = threshold * rule.decay
        elif share > rule.most:
            self._thresholds[shard] = threshold / rule.decay
