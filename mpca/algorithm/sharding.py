"""Cuts the flat vector of a model into shards (section 4.2), and says how many of them are right for a network.

Not for moving bytes, nor for the order of transfers.

The flat vector is all trainable parameters (a tied one once) and then all floating-point buffers. A cut may fall inside
a tensor, so that shards are equal in bytes: with cuts at layer edges only, VGG-A, whose largest tensor is 77 % of
the model, exchanges 1.55 times slower. Layer-aligned cuts remain an option, since the paper's misalignment argument
(section 4.4, figure 10b) speaks for them on models without such a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf, sqrt
from operator import add

from mpca.errors import ConfigError
from mpca.units import format_size

__all__ = ["AGE_COUNTS", "ELEMENT_BYTES", "LEAST_SHARDS", "MOST_SHARDS", "SHARD_LIMIT_BYTES", "ShardPlan", "shards_for"]

ELEMENT_BYTES = 4  # float32
#: Edges of shards are multiples of it, so that what lies behind an edge begins where a GPU's and a processor's vectors do.
#: VGG-A has its edges inside of one tensor: on an H200 its pull took 1.65 of the time that memory needs, and takes 1.25.
EDGE_ELEMENTS = 64
#: A shard travels as one Java byte array, whose length is an int; a page is left for headers.
SHARD_LIMIT_BYTES = (1 << 31) - 4096
#: Of `shards_for`: a number of shards lies between these, and the age of what arrives counts so many times as the period.
LEAST_SHARDS, MOST_SHARDS, AGE_COUNTS = 3, 24, 4
_PHASES = 3


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """Shard j is elements ``bounds[j]`` to ``bounds[j + 1]`` of the flat vector.

    Make one with `equal` or `layer_aligned`. A shard is empty when there are fewer elements (or layers) than shards;
    it is exchanged like any other, as zero bytes.
    """

    total: int  # elements of the flat vector
    parameters: int  # elements before this index are parameters, the rest are buffers
    shards: int
    bounds: tuple[int, ...]  # S + 1 edges, the first 0, the last `total`

    def __post_init__(self) -> None:
        if self.shards < 1:
            raise ConfigError(f"method.shards = {self.shards}: must be at least 1")
        if not 0 <= self.parameters <= self.total:
            raise ValueError(f"parameters must lie in 0..total: parameters={self.parameters}, total={self.total}")
        edges = self.bounds
        if len(edges) != self.shards + 1 or edges[0] != 0 or edges[-1] != self.total or list(edges) != sorted(edges):
            raise ValueError(f"not the edges of {self.shards} shards of {self.total} elements: {edges}")
        largest = max(self.sizes) * ELEMENT_BYTES
        if largest > SHARD_LIMIT_BYTES:
            least = -(-self.total * ELEMENT_BYTES // SHARD_LIMIT_BYTES)
            raise ConfigError(
                f"a shard is over 2 GiB: largest={format_size(largest)}, limit={format_size(SHARD_LIMIT_BYTES)}, "
                f"model={format_size(self.total * ELEMENT_BYTES)}, method.shards={self.shards}; "
                f"set method.shards to {least} or more, with method.layer_aligned=false"
            )

    @classmethod
    def equal(cls, total: int, parameters: int, shards: int) -> ShardPlan:
        r"""Shards equal in bytes, but for the last, which is smaller by at most 1.6 %; of a small model, to one element.

        .. math:: \text{bounds}_j = j\, E \lceil N / (S E) \rceil, \quad j < S, \qquad \text{bounds}_S = N

        with E = `EDGE_ELEMENTS`, if N is at least :math:`(S E)^2`, and else :math:`\text{bounds}_j = \lfloor j N / S \rfloor`.

        Raises:
            ConfigError: a shard would be over 2 GiB, or there are no shards.

        Example:
            >>> ShardPlan.equal(total=10, parameters=8, shards=3).bounds
            (0, 3, 6, 10)
        """
        if shards < 1 or total < (shards * EDGE_ELEMENTS) ** 2:
            return cls(total, parameters, shards, tuple(j * total // max(shards, 1) for j in range(max(shards, 0) + 1)))
        size = -(-total // (shards * EDGE_ELEMENTS)) * EDGE_ELEMENTS
        return cls(total, parameters, shards, (*(j * size for j in range(shards)), total))

    @classmethod
    def layer_aligned(cls, sizes: Sequence[int], parameters: int, shards: int) -> ShardPlan:
        """Shards that end where a tensor ends, the largest as small as possible and then the sizes alike.

        Args:
            sizes: elements of each tensor, in the order of the flat vector.
            parameters: as in `ShardPlan`.
            shards: how many; trailing or inner ones are empty when there are fewer tensors.

        Raises:
            ConfigError: a shard would be over 2 GiB.

        Example:
            >>> ShardPlan.layer_aligned([1, 1, 6, 1, 1], parameters=10, shards=3).bounds
            (0, 2, 8, 10)
        """
        edges = list(accumulate(sizes, initial=0))
        if shards < 1:  # refused by the constructor
            return cls(edges[-1], parameters, shards, (0, edges[-1]))
        ends = _cheapest_cuts(edges, shards, cost=float, join=max)
        largest = max(end - start for start, end in pairwise([0, *ends]))
        ends = _cheapest_cuts(edges, shards, lambda size: size**2 if size <= largest else inf, join=add)
        return cls(edges[-1], parameters, shards, (0, *ends))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each shard."""
        return tuple(end - start for start, end in pairwise(self.bounds))

    def slice(self, shard: int) -> slice:
        """The shard's elements of the flat vector."""
        return slice(self.bounds[shard], self.bounds[shard + 1])

    def parameters_in(self, shard: int) -> int:
        """How many elements of the shard are parameters; they come first, its buffers follow.

        Example:
            >>> plan = ShardPlan.equal(total=10, parameters=8, shards=3)
            >>> [plan.parameters_in(shard) for shard in range(3)]
            [3, 3, 2]
        """
        start, end = self.bounds[shard], self.bounds[shard + 1]
        return min(max(self.parameters - start, 0), end - start)


def shards_for(cycle_s: Callable[[float], float]) -> int:
    r"""The number of shards that makes the period of the whole model, and the age of what arrives, short together.

    A cycle has fixed seconds f beside the time of its shard on the wire. With m, the time of the whole model on the wire, the
    period is P, and what arrives is about three cycles old:

    .. math:: P(S) = S f + m, \qquad A(S) = 3 (f + m / S), \qquad S = \arg\min P + c A = \sqrt{3 c\,m / f}

    c = 4 is measured: in docs/compare.md's comparison the best of 3, 6, 12 and 24 shards were 6, 12 and 12 of `mpca-nesterov`
    where m / f is 2.1, 8.4 and 32, and the rule gives 5, 10 and 20.

    Args:
        cycle_s: seconds of a cycle that moves this share of the model, from 0 to 1.

    Returns:
        S, rounded, from 3 (the fewest that three phases can use) to 24.

    Example:
        >>> [shards_for(lambda share: 0.1 + m * share) for m in (0.05, 0.2, 2.5, 100.0)]
        [3, 5, 17, 24]
    """
    fixed = cycle_s(0)
    wire = max(cycle_s(1) - fixed, 0.0)
    best = sqrt(_PHASES * AGE_COUNTS * wire / fixed) if fixed else inf
    return round(min(max(best, LEAST_SHARDS), MOST_SHARDS))


def _cheapest_cuts(
    edges: list[int], shards: int, cost: Callable[[int], float], join: Callable[[float, float], float]
) -> list[int]:
    """Ends of `shards` runs of layers with the least total cost, by dynamic programming in O(S L^2).

    ``best[e]`` is the least cost of the first j runs that cover the layers before edge e; ``starts[j][e]`` is the beginning of
    the last of these runs.
    """
    last = len(edges) - 1
    best = [cost(edge) for edge in edges]
    starts: list[list[int]] = []
    for _ in range(1, shards):
        rows = [[join(best[s], cost(edges[e] - edges[s])) for s in range(e + 1)] for e in range(last + 1)]
        starts.append([min(range(len(row)), key=row.__getitem__) for row in rows])
        best = [min(row) for row in rows]
    ends = [last]
    for row in reversed(starts):
        ends.append(row[ends[-1]])
    return [edges[end] for end in reversed(ends)]
