"""One agent's share of an iterable data set: every n-th sample, for n agents. Not for map-style data sets: `share.py`.

The data set must give all agents the same samples in the same order, and all data workers too, unless it divides itself among
those. The engine skips the samples of the others. The data set shuffles by itself; if it has `set_epoch(epoch)`, that is called
before each epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from mpca.data.epochs import EpochPart, Epochs
from mpca.data.loader import batches
from mpca.errors import ConfigError

__all__ = ["IterableShare"]


class IterableShare:
    """Batches of one agent's share; arguments as of `Share`. One iteration at a time.

    Args:
        splits_itself: whether the data set divides its samples among data workers (by `get_worker_info`), as one must that was
            written for torch's own loader.

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
        splits_itself: bool = False,
        **loader: Any,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size must be 1 or more: batch_size={batch_size}")
        self._dataset = dataset
        self._loader = {**loader, "batch_size": batch_size}
        self._splits_itself = splits_itself
        self._stopping, self._count, self._epochs = stopping, count, epochs

    def __len__(self) -> int:
        """As `Share.__len__`. Raises TypeError when the data set has no length, as torch does."""
        part, epochs = self._epochs.coming()
        samples, size = len(self._dataset), int(self._loader["batch_size"])  # type: ignore[arg-type]  # may raise TypeError
        workers = max(1, self._loader.get("num_workers", 0))  # each makes batches of its own
        of_worker = [
            len(range(part.rank + one * part.world_size, samples, part.world_size * workers)) for one in range(workers)
        ]
        return epochs * sum(one // size if self._loader.get("drop_last") else -(-one // size) for one in of_worker)

    def __iter__(self) -> Iterator[Any]:
        for part in self._epochs.parts():
            if hasattr(self._dataset, "set_epoch"):
                self._dataset.set_epoch(part.epoch)
            empty = True
            for batch in batches(_Every(self._dataset, part, self._splits_itself), **self._loader):
                if self._stopping():
                    return
                empty = False
                self._epochs.handed(part.epoch)
                self._count(_samples(batch, self._loader["batch_size"]))
                yield batch
            if empty:
                raise ConfigError(
                    f"no sample for this agent in epoch {part.epoch}: it is number {part.rank} of {part.world_size}"
                )


class _Every(IterableDataset[Any]):
    """The samples of one agent; in a data worker, those of that worker."""

    def __init__(self, dataset: IterableDataset[Any], part: EpochPart, splits_itself: bool) -> None:
        self._dataset, self._part, self._splits_itself = dataset, part, splits_itself

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        workers, number = (1, 0) if worker is None or self._splits_itself else (worker.num_workers, worker.id)
        rank, world_size = self._part.rank, self._part.world_size
        return islice(iter(self._dataset), rank + number * world_size, None, world_size * workers)


def _samples(batch: Any, usual: int) -> int:
    """Number of samples of a collated batch; `usual` where it has no length, as a class of the user's or a number by name."""
    if isinstance(batch, Mapping):
        return _samples(next(iter(batch.values()), None), usual)
    if isinstance(batch, (list, tuple)) and batch and hasattr(batch[0], "__len__"):
        return _samples(batch[0], usual)
    try:
        return len(batch)
    except TypeError:
        return usual
