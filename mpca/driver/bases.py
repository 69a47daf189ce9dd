"""Who holds which base (`algorithm.bases`), as the driver knows it, and which one a freeze or a broadcast is made against.

The driver names the newest version that all expected contributors have acknowledged. Expected are the executors that hold any
of the two versions that are kept; the others (joiners, executors that missed two broadcasts, all of them after a resume or
behind a cut) are sent the named base in full, and are in no sum until they have acknowledged it. So one that is late with the
newest version keeps the others at the one before, for one exchange of that shard; when the next version is made it has neither,
and waits for the base alone.

When those expected have no version in common, the one is named that most of them have, of two the newer one.
"""

from __future__ import annotations

from collections.abc import Iterable

from mpca.algorithm.bases import KEPT, Base

__all__ = ["Bases"]


class Bases:
    """See the module's text. One driver's attempt (term) has one."""

    def __init__(self) -> None:
        self._kept: dict[int, list[Base]] = {}  # by shard, newest first
        self._holders: dict[Base, set[str]] = {}

    def made(self, base: Base) -> None:
        """A version of a shard is on its way, or is x_0. The oldest version that is kept is forgotten for it.

        Raises:
            ValueError: it is no newer than what there is.
        """
        kept = self._kept.setdefault(base.shard, [])
        if kept and base.version <= kept[0].version:
            raise ValueError(f"a base must be newer than the last one: {base} after {kept[0]}")
        kept.insert(0, base)
        self._holders[base] = set()
        for old in kept[KEPT:]:
            del self._holders[old]
        del kept[KEPT:]

    def acknowledged(self, executor: str, base: Base) -> None:
        """An executor holds a base. One that is forgotten by now is not noted."""
        if base in self._holders:
            self._holders[base].add(executor)

    def lost(self, executor: str) -> None:
        """An executor is gone, and what it held."""
        for holders in self._holders.values():
            holders.discard(executor)

    def without_any(self, shard: int, executors: Iterable[str]) -> set[str]:
        """Executors, of these, that have acknowledged no base of this shard that is kept."""
        return set(executors).difference(*(self._holders[one] for one in self._kept.get(shard, ())))

    def held(self, base: Base) -> bool:
        """Whether any executor has acknowledged this base."""
        return bool(self._holders.get(base))

    def keeps(self, base: Base) -> bool:
        """Whether a base is one of the two newest versions of its shard."""
        return base in self._holders

    def clear(self) -> None:
        """The model is cut anew: its shards have no base yet."""
        self._kept.clear()
        self._holders.clear()

    def named(self, shard: int, executors: Iterable[str]) -> Base | None:
        """The base for these executors.

        Args:
            shard: which one.
            executors: that have agents to be asked.

        Returns:
            The base; None: there is none of this shard yet.
        """
        kept = self._kept.get(shard, [])
        asked = set(executors)
        expected = set().union(*(self._holders[one] & asked for one in kept)) if kept else set()
        return max(kept, key=lambda one: (len(self._holders[one] & expected), one.version), default=None)

    def without(self, base: Base, executors: Iterable[str]) -> list[str]:
        """Executors, of these, that have not acknowledged this base: it is sent to them in full."""
        holders = self._holders.get(base, set())
        return [one for one in executors if one not in holders]
