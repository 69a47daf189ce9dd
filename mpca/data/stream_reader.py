"""Reads one agent's records in their order: by the plan, in units, with a local copy, shuffled in a window. Has no thread.

The order depends on (seed, epoch, agent, number of agents, incarnation) and on the records' lengths alone, never on timing.
Memory is that of the window and of one read.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from mpca.data.cache import RecordCache
from mpca.data.index import Entry, Index
from mpca.data.manifest import Manifest, load_index, load_manifest
from mpca.data.plan import UNIT_RECORDS, Readers, Unit, shares, units_of
from mpca.data.shards import cut, span
from mpca.errors import ConfigError
from mpca.storage import Store
from mpca.timeouts import STREAM_AGAIN_S

__all__ = ["Record", "ShareReader", "SplitData"]

_log = logging.getLogger("mpca.data")

_UNITS_EACH = 8  # units of an agent's share, at least: a small split has smaller units, so shares differ by at most an eighth
_LOOK_S = 0.2  # an agent that takes part in no epoch looks this often for a new list of readers


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the split, as it was read."""

    number: int  # in the split
    epoch: int
    unit: Unit
    unit_index: int  # the unit's index among the units that this agent reads in this epoch
    entry: Entry
    jpeg: bytes | None
    where: str  # for people: shard, key, offset
    reason: str = ""  # why `jpeg` is None

    @property
    def held_bytes(self) -> int:
        return len(self.jpeg or b"")


@dataclass(frozen=True)
class SplitData:
    """An open split, which several readers may share."""

    store: Store
    manifest: Manifest
    split: str
    index: Index

    @classmethod
    def open(cls, store: Store, split: str) -> SplitData:
        """Open a split.

        Raises:
            ConfigError: the manifest or the index is missing or damaged, or a label is out of range.
        """
        manifest = load_manifest(store)
        return cls(store, manifest, split, load_index(store, manifest, split))

    def __len__(self) -> int:
        return len(self.index)

    def shard_name(self, shard: int) -> str:
        return self.manifest.splits[self.split].shards[shard].name


class ShareReader:
    """One agent's reader. `records` may be iterated once."""

    def __init__(
        self,
        data: SplitData,
        *,
        seed: int,
        agent: int,
        agents: int,
        incarnation: int,
        window_bytes: int,
        cache: RecordCache,
        epochs: int | None = None,
        wait: Callable[[float], None] = time.sleep,
        readers: Readers | None = None,
    ) -> None:
        self._data, self._cache, self._wait = data, cache, wait
        self._cuts: dict[int, tuple[Unit, ...]] = {}
        if len(self._cut(agents)) < agents:
            raise ConfigError(
                f"fewer samples than agents: {data.split} has {len(data)} records, agents={agents}; use fewer (cluster.agents)"
            )
        self._seed, self._agent, self._incarnation = seed, agent, incarnation
        self._window_bytes, self._epochs = window_bytes, epochs
        self.readers = readers or Readers.of(agents)  # replaced as a whole when agents are lost or join
        self.ahead = self.readers.first(agent)  # newest epoch from which records were read
        #: Records of this agent's share of a whole epoch; the allowed share of bad records refers to it.
        self.share_records = sum(unit.count for unit in self._share(0, Readers.of(agents)))

    def records(self) -> Iterator[Record]:
        """Yield the records of all epochs. The window is emptied at the end of each epoch."""
        epoch = self.readers.first(self._agent)
        while self._epochs is None or epoch < self._epochs:
            while not self._takes_part(epoch):  # the driver counts this agent as lost: wait for the next list
                self._wait(_LOOK_S)
            chance = np.random.default_rng((10, self._seed, epoch, self._agent, self._incarnation))
            window: list[Record] = []
            held = 0
            for record in self._in_plan_order(epoch):
                window.append(record)
                held += record.held_bytes
                while held > self._window_bytes and len(window) > 1:
                    held -= (drawn := _draw(window, chance)).held_bytes
                    yield drawn
            while window:
                yield _draw(window, chance)
            epoch += 1

    def _share(self, epoch: int, readers: Readers) -> tuple[Unit, ...]:
        sticky = self._cache.limit_bytes > 0
        return shares(self._cut, readers, seed=self._seed, epoch=epoch, sticky=sticky).get(self._agent, ())

    def _cut(self, agents: int) -> tuple[Unit, ...]:
        """The split's units for that number of agents."""
        if agents not in self._cuts:
            each = min(UNIT_RECORDS, max(1, len(self._data) // (agents * _UNITS_EACH)))
            self._cuts[agents] = units_of(self._data.index.starts, each)
        return self._cuts[agents]

    def _takes_part(self, epoch: int) -> bool:
        """Whether this agent takes part in that epoch or a later one."""
        readers = self.readers
        return self._agent in readers.begin(epoch) or readers.first(self._agent) > epoch

    def _in_plan_order(self, epoch: int) -> Iterator[Record]:
        readers: Readers | None = None
        todo: deque[Unit] = deque()
        seen: set[Unit] = set()
        while True:
            if readers is not self.readers:  # continue with the new share, without the units that were read already
                readers = self.readers
                todo = deque(unit for unit in self._share(epoch, readers) if unit not in seen)
            if not todo:
                return
            unit, index = todo.popleft(), len(seen)
            seen.add(unit)
            self.ahead = epoch
            yield from self._unit(unit, index, epoch)

    def _unit(self, unit: Unit, index: int, epoch: int) -> Iterator[Record]:
        entries = [self._data.index.entry(number) for number in range(unit.first, unit.first + unit.count)]
        at = 0
        while at < len(entries):
            upto = at + 1
            while upto < len(entries) and span(entries[at : upto + 1])[1] <= self._window_bytes // 4:
                upto += 1
            yield from self._run(unit, index, unit.first + at, entries[at:upto], epoch)
            at = upto

    def _run(self, unit: Unit, index: int, first: int, entries: list[Entry], epoch: int) -> Iterator[Record]:
        name = self._data.shard_name(unit.shard)
        offset, length = span(entries)
        data, missing = self._cache.get(first), "the shard ends before it"
        if data is None:
            try:
                data = self._read(name, offset, length)
            except FileNotFoundError:
                data, missing = b"", "the shard is not there"
            if len(data) == length:
                self._cache.put(first, data)
            else:
                lost = sum(1 for jpeg in cut(data, entries) if jpeg is None)
                shard = self._data.store.describe(name)
                _log.warning("%s: %s, wanted=%d..%d, %d records unread", missing, shard, offset, offset + length, lost)
        for number, (entry, jpeg) in enumerate(zip(entries, cut(data, entries), strict=True), start=first):
            where = f"{name}:{entry.key} at {entry.offset}"
            yield Record(number, epoch, unit, index, entry, jpeg, where, "" if jpeg is not None else missing)

    def _read(self, name: str, offset: int, length: int) -> bytes:
        for pause_s in STREAM_AGAIN_S:
            try:
                return self._data.store.read_range(name, offset, length)
            except FileNotFoundError:
                raise
            except OSError as error:
                shard = self._data.store.describe(name)
                _log.warning("a read failed and is tried again in %.1f s: %s at %d: %s", pause_s, shard, offset, error)
                self._wait(pause_s)
        return self._data.store.read_range(name, offset, length)


def _draw(window: list[Record], chance: np.random.Generator) -> Record:
    """Take a random record out of the window; the last record moves to its chosen."""
    chosen = int(chance.integers(len(window)))
    window[chosen], window[-1] = window[-1], window[chosen]
    return window.pop()
