"""The states that differences are taken from: the decoded last broadcasts of a shard, the same bytes wherever they are held.

An executor's JVM holds them once for all its agents, and the driver once. Both keep the two newest versions of a shard, by the
same rule and without a message: while the newest is on its way, some executors have it and others the one before.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from mpca.algorithm.codecs import Floats

__all__ = ["KEPT", "Base", "HeldBases"]

#: Versions of a shard that are held.
KEPT = 2


class Base(NamedTuple):
    """Names a base. Two that are named alike have the same bytes."""

    term: int  # of the driver that made it
    shard: int
    version: int
    crc: int  # CRC-32 of its float32 bytes, little-endian

    @classmethod
    def of(cls, term: int, shard: int, version: int, vector: Floats) -> Base:
        """The name of these bytes."""
        return cls(term, shard, version, crc32(vector.astype("<f4", copy=False).tobytes()))


class HeldBases:
    """The bases that one process holds."""

    def __init__(self) -> None:
        self._term = 0
        self._held: dict[Base, Floats] = {}

    def hold(self, base: Base, vector: Floats) -> bool:
        """Take a base in. It drops what is older than the two newest versions of its shard, and all of older terms.

        Args:
            base: its name.
            vector: float32; nobody writes to it any more.

        Returns:
            Whether it is held now; False: it is of an older term, or older than two others.

        Raises:
            ValueError: its bytes are others than its name says.
        """
        if Base.of(base.term, base.shard, base.version, vector) != base:
            raise ValueError(f"not the bytes of {base}")
        if base.term < self._term:
            return False
        if base.term > self._term:
            self._term = base.term
            self._held.clear()
        self._held[base] = vector
        mine = sorted((one for one in self._held if one.shard == base.shard), key=lambda one: one.version)
        for old in mine[:-KEPT]:
            del self._held[old]
        return base in self._held

    def get(self, base: Base) -> Floats | None:
        """The bytes of a base; None: it is not held."""
        return self._held.get(base)

    def clear(self) -> None:
        """The model is cut anew."""
        self._held.clear()
