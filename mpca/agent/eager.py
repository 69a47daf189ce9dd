"""The outer optimiser of an agent with eager updates (`How.EAGER`): what it hands over, and where it goes on.

Numbers only, as in `outbox`: a trainer gives the state of a shard, and takes another as its own. They are of the agent's
parameters alone, and lie in host memory; buffers are handed over as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from mpca.algorithm import Eager, Outer, arrived, begin_eager, handed_over

__all__ = ["EagerOuter"]

_Array = npt.NDArray[np.float32]


class EagerOuter:
    """Of one agent.

    Args:
        outer: its numbers.
        bounds: shard edges in elements; local tensors' shards behind the model's own do not matter.
        parameters: elements before this index are parameters.
        shards: of the model.
        read: reads a shard, now x_0, into an array.
    """

    def __init__(
        self, outer: Outer, bounds: list[int], parameters: int, shards: int, read: Callable[[int, _Array], None]
    ) -> None:
        self._outer = outer
        self._states = []
        for shard, (a, b) in enumerate(pairwise(bounds[: shards + 1])):
            x0 = np.empty(b - a, np.float32)
            read(shard, x0)
            self._states.append(begin_eager(x0[: max(0, min(b, parameters) - a)]))

    def hand_over(self, shard: int, out: _Array) -> _Array:
        """Turn the state of a shard into what is handed over of it, in place.

        Returns:
            The state with which the agent goes on.
        """
        after, p = out.copy(), self._states[shard].joint.size
        self._states[shard], out[:p] = handed_over(self._states[shard], after[:p], self._outer)
        after[:p] = self._states[shard].start
        return after

    def installed(self, shard: int, data: _Array, mode: str, share: float) -> None:
        """A joint state has come; `mode` "replace": it is the agent's own now, whose outer optimiser begins anew."""
        if shard >= len(self._states):
            return
        state = self._states[shard]
        joint = data[: state.joint.size].copy()
        self._states[shard] = begin_eager(joint) if mode == "replace" else arrived(state, joint, share, self._outer)

    def own(self) -> list[dict[str, Any]]:
        """What `go_on` needs, by shard."""
        return [one._asdict() for one in self._states]

    def go_on(self, own: list[dict[str, Any]]) -> None:
        """Be as `own` was, whose arrays may be tensors by now."""
        self._states = []
        for one in own:
            joint, start, v, d = (np.asarray(one[name]) for name in ("joint", "start", "v", "d"))
            self._states.append(Eager(joint, start, v, d, one["share"]))
