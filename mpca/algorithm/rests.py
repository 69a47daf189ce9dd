"""What rounding leaves behind: a sender keeps it, and adds it to what it sends next (error feedback).

Two senders keep rests. An executor whose agents take arrivals in place of their own parameters keeps that of its part: nobody
else has it. (Agents that are pulled still have it in their parameters, and delay-corrected ones get it back with the arrival,
`with_rest`; both add it to their next snapshot by themselves.) And the owner of a range keeps that of the range's sum, which it
rounds once more on its way to the driver.

A sum may be made several times, and may never come into the joint model. So a rest belongs to the cycle that left it, and
the driver says which cycle it took last (`after`): only that one's rest is added. An order that is carried out again finds the
same rest as the first time, and gives the same bytes; a cycle that was given up leaves nothing. On executors the rest of a
range belongs to an order: of two that sum one cycle, an owner may have had a part in the one that was given up alone.

    sent + rest = values + rest of `after`, in float32                               (one element of one sum)
    joint model's mean + change of all rests = the weighted mean of what agents handed over
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mpca.algorithm.codecs import Floats

__all__ = ["Coder", "Rests", "with_rest"]


class Coder(Protocol):
    """Writes and reads chunks, as `codecs.Codec`."""

    def encode(self, values: Floats, parameters: int) -> bytes:
        """As `Codec.encode`."""
        ...

    def decode(self, data: bytes, elements: int, parameters: int) -> Floats:
        """As `Codec.decode`."""
        ...


@dataclass(frozen=True, slots=True)
class _Left:
    ranges: Hashable
    rest: Floats


class Rests:
    """The rests of one sender, by what it sends: a shard, or a chunk of one.

    Args:
        coder: writes what is sent.
    """

    def __init__(self, coder: Coder) -> None:
        self._coder = coder
        self._left: dict[Hashable, dict[int, _Left]] = {}  # by what is sent, then by cycle

    def encode(
        self, what: Hashable, cycle: int, values: Floats, parameters: int, after: int | None = None, ranges: Hashable = None
    ) -> bytes:
        """Write values and what the cycle `after` left of the same; keep what is left now.

        Args:
            what: names what is sent.
            cycle: whose values these are.
            values: float32[n].
            parameters: how many of them, from the first on, are parameters; the others are buffers and leave nothing.
            after: the newest cycle before this one whose sum the driver took; None: none was.
            ranges: how the shard was cut. A rest of another cut is dropped.

        Raises:
            ValueError: a parameter is not finite, alone or with its rest. Nothing is kept then.
        """
        before = self.rest(what, after, values.size, ranges)
        with np.errstate(over="ignore", invalid="ignore"):  # refused by the coder
            total = values + before
        data = self._coder.encode(total, parameters)
        rest = np.zeros_like(total)
        np.subtract(total[:parameters], self._coder.decode(data, values.size, parameters)[:parameters], out=rest[:parameters])
        kept = self._left.get(what, {})
        self._left[what] = {old: one for old, one in kept.items() if old == after} | {cycle: _Left(ranges, rest)}
        return data

    def rest(self, what: Hashable, cycle: int | None, elements: int, ranges: Hashable = None) -> Floats:
        """What a cycle left.

        Returns:
            float32[elements]; zeros when that cycle left nothing, or in another cut. Not to be written to.
        """
        left = None if cycle is None else self._left.get(what, {}).get(cycle)
        if left is None or left.ranges != ranges or left.rest.size != elements:
            return np.zeros(elements, np.float32)
        return left.rest

    def clear(self) -> None:
        """The model is cut anew, or the driver is another attempt: nothing that was left fits."""
        self._left.clear()


def with_rest(arrival: Floats, rest: Floats) -> Floats:
    r"""What an executor hands to a delay-corrected agent: the joint state and what rounding left of the agent's snapshot.

    The agent adds :math:`\tilde{x}^* + r - y^i` to its parameters (`penalty.correct`): its snapshot counts without the rest,
    which was in no sum, so the agent keeps that rest, and the next snapshot has it. An arrival that answers the same snapshot
    once more is handed over with the same rest.

    Args:
        arrival: :math:`\tilde{x}^*`, float32[n].
        rest: :math:`r`, of the part that has this agent's newest snapshot; float32[n].

    Example:
        >>> with_rest(np.float32([3]), np.float32([0.25]))
        array([3.25], dtype=float32)
    """
    return arrival + rest
