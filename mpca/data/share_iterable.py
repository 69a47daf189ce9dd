"""One agent's share of an iterable data set: every n-th sample, for n agents. Not for map-style data sets: `share.py`.

The data set must give all agents and data workers the same samples in the same order. The engine skips the samples of the
others. The data set shuffles by itself; if it has `set_epoch(epoch)`, that is called before each epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from mpca.data.epochs import Epochs, Turn
from mpca.errors import ConfigError

__all__ = ["IterableShare"]


class IterableShare:
    """Batches of one agent's share; arguments as of `Share`. One iteration at a time.

    Raises:
        ConfigError: `batch_size` is below 1, or (in an iteration) the agent has no sample in an epoch.
    """

    def __init__(
        self,
        dataset: IterableDataset[Any],
        batch_size: int,
        *,
        epochs: Epochs,
        stopping: Callable[[], bool] = lambda: False,
        count: Callable[[int], None] = lambda samples: None,
        **loader: Any,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size must be 1 or more: batch_size={batch_size}")
        self._dataset = dataset
        self._loader = {**loader, "batch_size": batch_size}
        self._stopping, self._count, self._epochs = stopping, count, epochs

    def __len__(self) -> int:
        """As `Share.__len__`. Raises TypeError when the data set has no length, as torch does."""
        turn, epochs = self._epochs.coming()
        samples, size = len(self._dataset), self._loader["batch_size"]  # type: ignore[arg-type]
        workers = max(1, self._loader.get("num_workers", 0))  # each makes batches of its own
        of_worker = [len(range(turn.place + one * turn.among, samples, turn.among * workers)) for one in range(workers)]
        return epochs * sum(-(-one // size) for one in of_worker)

    def __iter__(self) -> Iterator[Any]:
        for turn in self._epochs.turns():
            if hasattr(self._dataset, "set_epoch"):
                self._dataset.set_epoch(turn.epoch)
            empty = True
            for batch in DataLoader(_Every(self._dataset, turn), **self._loader):
                if self._stopping():
                    return
                empty = False
                self._epochs.handed(turn.epoch)
                self._count(_samples(batch))
                yield batch
            if empty:
                raise ConfigError(f"no sample for this agent in epoch {turn.epoch}: it is number {turn.place} of {turn.among}")


class _Every(IterableDataset[Any]):
    """The samples of one agent; in a data worker, those of that worker."""

    def __init__(self, dataset: IterableDataset[Any], turn: Turn) -> None:
        self._dataset, self._turn = dataset, turn

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        workers, number = (1, 0) if worker is None else (worker.num_workers, worker.id)
        place, among = self._turn.place, self._turn.among
        return islice(iter(self._dataset), place + number * among, None, among * workers)


def _samples(batch: Any) -> int:
    """Number of samples of a collated batch."""
    if isinstance(batch, Mapping):
        return _samples(next(iter(batch.values())))
    return _samples(batch[0]) if isinstance(batch, (list, tuple)) and batch and hasattr(batch[0], "__len__") else len(batch)
