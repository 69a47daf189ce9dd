"""What a codec makes of a run, computed once more in numpy: every sum that the driver took, to the bit.

From the tapes of agents (which bytes were handed over), the orders (who was in a sum, in which sequence) and the vectors that
the driver published. A base is known but for its version: the two newest are tried. Two of them can give the same sum, which is
rounded after all: then both are tried again. Where no executor has one, a sum is float32. One agent an executor.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from itertools import pairwise, product

import numpy as np

from mpca.algorithm.averaging import weighted_sum
from mpca.algorithm.codecs import Codec
from tests.spark.engine import Told
from tests.spark.paper import shard_slices

__all__ = ["Coded"]


@dataclass(frozen=True)
class _Left:
    """What rounding left of one sum of a shard, and of the parts in it."""

    cut: object = None  # executors and ranges
    of_sums: list[np.ndarray] = field(default_factory=list)  # by range
    of_parts: dict[str, np.ndarray] = field(default_factory=dict)  # by executor

    def key(self) -> object:
        return self.cut, *(one.tobytes() for one in (*self.of_sums, *self.of_parts.values()))


class Coded:
    """The sums of one run.

    Args:
        told: a run of `jobs.quadratic` with all its tapes.
        tapes: of `paper.read_tape`.
        codec: the key `cluster.codec`.
        elements: of the model.
        parameters: of them, from the first on.
        carries: whether executors add to a part what rounding left of the one before.
    """

    def __init__(
        self, told: Told, tapes: dict[str, np.ndarray], codec: str, elements: int, parameters: int, *, carries: bool
    ) -> None:
        self._codec, self._carries = Codec(codec), carries
        shards = 1 + max(one.shard for one in told.cycles)
        self.slices = shard_slices(elements, shards)
        self._parameters = [max(0, min(parameters, one.stop) - one.start) for one in self.slices]
        self._handed = [
            {
                zlib.crc32(state[piece].tobytes()): state[piece]
                for tape in tapes.values()
                for state in tape.reshape(-1, elements)
            }
            for piece in self.slices
        ]
        began = told.agents("started") + told.agents("replaced")
        self._places = {(one.index, one.incarnation): one.executor_id for one in began}
        start = told.ended.returns[0]["start"]
        sent = any(one.mode == "replace" for order in told.run.orders[:20] for one in order.downloads)
        #: By shard and version, what it may be.
        self._bases: list[list[list[np.ndarray]]] = [[[start[piece]] if sent else []] for piece in self.slices]
        self._left: dict[int, list[_Left]] = {}  # by shard, what the sum before may have left
        self._ranges: dict[int, set[int]] = {}  # by cycle; an order that finds an executor gone cuts nothing
        for order in told.run.orders:
            if order.freeze is not None:
                self._ranges.setdefault(order.freeze.cycle, set()).add(len(order.executors))
        self._published = {
            (one.shard, one.version): told.run.published[one.broadcast]
            for order in told.run.orders
            for one in order.downloads
            if one.mode == "install"
        }
        self.rests: dict[tuple[int, int], np.ndarray] = {}  # (cycle, agent) -> what rounding left of its executor's part
        self.checked = 0  # sums that were encoded
        self.plain: list[int] = []  # cycles of the others
        self.decoded: dict[tuple[int, int], list[np.ndarray]] = {}  # (shard, version) -> what executors may have decoded
        versions = [0] * shards
        for order, _ in told.run.reductions:
            if order.order in told.run.sums:
                self._check(told, order, versions)

    def handed(self, shard: int, crc: int) -> np.ndarray:
        """What an agent handed over of a shard, float32."""
        return self._handed[shard][crc]

    def _check(self, told: Told, order, versions: list[int]) -> None:
        reduce = order.reduce
        shard, cycle, p = reduce.shard, reduce.cycle, self._parameters[reduce.shard]
        given = told.cycle(cycle).contributors
        agent_on = {self._places[agent, one["incarnation"]]: agent for agent, one in given.items()}
        taken = told.run.sums[order.order]
        n = taken.size
        tried = []
        handed = [self._handed[shard][given[agent_on[part.executor]]["crc"]] for part in reduce.parts]
        if np.array_equal(weighted_sum(handed, [part.weight for part in reduce.parts]), taken):
            self.plain.append(cycle)
            self._took(shard, versions)
            return
        bases = [one for version in self._bases[shard][-2:] for one in version]
        matching = []
        for base, ranges, before in product(bases, self._ranges[cycle], self._left.get(shard, [_Left()])):
            edges = [e * n // ranges for e in range(ranges + 1)]
            parts, rests = [], {}
            for part, snapshot in zip(reduce.parts, handed, strict=True):
                values = _difference(snapshot, base, p)
                if self._carries:
                    values = _plus(values, before.of_parts.get(part.executor, np.zeros(n, np.float32)), p)
                parts.append(self._codec.rounded(values, edges, p))
                rests[part.executor] = _rest(values, parts[-1], p)
            mean = weighted_sum(parts, [part.weight for part in reduce.parts])
            cut = (tuple(order.executors), ranges)
            pieces, left = [], []
            for chunk, (a, b) in enumerate(pairwise(edges)):
                share = max(0, min(p, b) - a)
                values = _plus(mean[a:b], before.of_sums[chunk] if before.cut == cut else np.zeros(b - a, np.float32), share)
                pieces.append(self._codec.of_sums.decode(self._codec.of_sums.encode(values, share), b - a, share))
                left.append(_rest(values, pieces[-1], share))
            expected = _plus(np.concatenate(pieces), base, p)
            tried.append(np.abs(expected - taken).max())
            if np.array_equal(expected, taken):
                matching.append((base, _Left(cut, left, {**before.of_parts, **rests})))
        if not matching:
            raise AssertionError(f"cycle {cycle}, shard {shard}: the sum is that of no base, off by {tried}")
        self.checked += 1
        # It is known now which one this version is.
        known = {id(base) for base, _ in matching}
        self._bases[shard] = [[one for one in version if id(one) in known] or version for version in self._bases[shard]]
        self._left[shard] = [*{left.key(): left for _, left in matching}.values()]
        for part in reduce.parts:
            self.rests[cycle, agent_on[part.executor]] = self._left[shard][0].of_parts[part.executor]
        self._took(shard, versions)

    def _took(self, shard: int, versions: list[int]) -> None:
        """The next version of a shard was made, and perhaps went out."""
        versions[shard] += 1
        vector = self._published.get((shard, versions[shard]))
        if vector is None:
            return
        olds = [one for version in self._bases[shard][-2:] for one in version]
        made = [self._decoded(vector, old, self._parameters[shard]) for old in olds] or [vector]
        self._bases[shard].append([*{one.tobytes(): one for one in made}.values()])
        self.decoded[shard, versions[shard]] = self._bases[shard][-1]

    def _decoded(self, vector: np.ndarray, base: np.ndarray, parameters: int) -> np.ndarray:
        return _plus(self._codec.rounded(_difference(vector, base, parameters), [0, vector.size], parameters), base, parameters)


def _plus(values: np.ndarray, more: np.ndarray, parameters: int) -> np.ndarray:
    """float32; buffers stay."""
    return np.concatenate([values[:parameters] + more[:parameters], values[parameters:]])


def _difference(values: np.ndarray, base: np.ndarray, parameters: int) -> np.ndarray:
    return np.concatenate([values[:parameters] - base[:parameters], values[parameters:]])


def _rest(values: np.ndarray, decoded: np.ndarray, parameters: int) -> np.ndarray:
    return np.concatenate([values[:parameters] - decoded[:parameters], np.zeros(values.size - parameters, np.float32)])
