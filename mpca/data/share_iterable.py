"""One agent's share of a data set that can only be gone through: every `agents`-th sample of it. Not for map-style ones.

The data set must give everybody the same samples in the same order; it is the engine that leaves the others' out, of other
agents and of other data workers alike. Shuffling is the data set's: `set_epoch(epoch)` is called when it has that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count as from_zero
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from mpca.errors import ConfigError

__all__ = ["IterableShare"]


class IterableShare:
    """Endless batches of one agent's share; ends when `stopping` says so, or after `epochs`."""

    def __init__(
        self,
        dataset: IterableDataset[Any],
        batch_size: int,
        *,
        agent: int,
        agents: int,
        stopping: Callable[[], bool] = lambda: False,
        count: Callable[[int], None] = lambda samples: None,
        epochs: int | None = None,
        **loader: Any,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size must be 1 or more: batch_size={batch_size}")
        self._dataset, self._agent, self._agents = dataset, agent, agents
        self._loader = {**loader, "batch_size": batch_size}
        self._stopping, self._count, self._epochs = stopping, count, epochs

    def __iter__(self) -> Iterator[Any]:
        for epoch in from_zero() if self._epochs is None else range(self._epochs):
            if hasattr(self._dataset, "set_epoch"):
                self._dataset.set_epoch(epoch)
            empty = True
            for batch in DataLoader(_Every(self._dataset, self._agent, self._agents), **self._loader):
                if self._stopping():
                    return
                empty = False
                self._count(_samples(batch))
                yield batch
            if empty:
                raise ConfigError(f"no sample for this agent in epoch {epoch}: agent={self._agent}, agents={self._agents}")


class _Every(IterableDataset[Any]):
    """The samples of one agent, and in a data worker of that worker."""

    def __init__(self, dataset: IterableDataset[Any], agent: int, agents: int) -> None:
        self._dataset, self._agent, self._agents = dataset, agent, agents

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        workers, number = (1, 0) if worker is None else (worker.num_workers, worker.id)
        return islice(iter(self._dataset), self._agent + number * self._agents, None, self._agents * workers)


def _samples(batch: Any) -> int:
    """How many samples a collated batch holds."""
    if isinstance(batch, Mapping):
        return _samples(next(iter(batch.values())))
    return _samples(batch[0]) if isinstance(batch, (list, tuple)) and batch and hasattr(batch[0], "__len__") else len(batch)
