"""One agent's share of a map-style data set: which samples, in which order, epoch after epoch. No communication.

All who begin an epoch cut the same permutation of it, drawn from (seed, epoch), so that together they see every sample of
it exactly once. The order inside a share is drawn from (seed, agent, incarnation, epoch): a replacement does not walk in
its predecessor's steps.

Not for who the agent is (`mpca.shard` fills that in), nor for who begins an epoch: `epochs.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mpca.data.epochs import EpochPart, Epochs
from mpca.errors import ConfigError

__all__ = ["Share", "share_of_epoch"]

_Indices = npt.NDArray[np.int64]


def share_of_epoch(samples: int, part: EpochPart, *, seed: int, agent: int, incarnation: int) -> _Indices:
    """Indices of one agent's samples of one epoch, in the order in which it sees them.

    Example:
        >>> shares = [share_of_epoch(5, EpochPart(0, a, world_size=2), seed=1, agent=a, incarnation=0) for a in range(2)]
        >>> sorted(int(i) for share in shares for i in share)
        [0, 1, 2, 3, 4]
    """
    # The leading number keeps the two streams apart: SeedSequence takes (1, 0) and (1, 0, 0) for the same.
    everybody = np.random.default_rng((1, seed, part.epoch)).permutation(samples)
    mine = everybody[part.rank :: part.world_size]
    np.random.default_rng((2, seed, part.epoch, agent, incarnation)).shuffle(mine)
    return mine


class Share:
    """Batches of one agent's share; ends with its epochs, or when `stopping` says so. One iteration at a time.

    The batches of an epoch are as equal as they can be, none larger than `batch_size`: a last batch of one sample would
    be refused by BatchNorm, and leaving it out would leave samples out.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        seed: int,
        incarnation: int,
        epochs: Epochs,
        stopping: Callable[[], bool] = lambda: False,
        count: Callable[[int], None] = lambda samples: None,
        **loader: Any,
    ) -> None:
        """`loader` goes to `torch.utils.data.DataLoader` (num_workers, collate_fn, pin_memory, ...)."""
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise ConfigError(f"not a map-style data set: {type(dataset).__name__} lacks __len__ or __getitem__")
        if batch_size < 1:
            raise ConfigError(f"batch_size must be 1 or more: batch_size={batch_size}")
        if len(dataset) < epochs.agents:
            raise ConfigError(
                f"fewer samples than agents: samples={len(dataset)}, agents={epochs.agents}; "
                "use a larger data set or fewer agents (cluster.agents)"
            )
        self._dataset = dataset
        self._batch_size = batch_size
        self._who = {"seed": seed, "agent": epochs.agent, "incarnation": incarnation}
        self._stopping = stopping
        self._count = count
        self._epochs = epochs
        self._loader = loader

    def __len__(self) -> int:
        """Batches of one iteration; of one epoch when it ends with the run alone (``epochs=None``), as schedules count."""
        part, epochs = self._epochs.coming()
        return epochs * -(-len(range(part.rank, len(self._dataset), part.world_size)) // self._batch_size)

    def __iter__(self) -> Iterator[Any]:
        asked = _Batches(self._indices())
        for batch in self._batches(asked):
            if self._stopping():
                return
            epoch, samples = asked.oldest()
            self._epochs.handed(epoch)
            self._count(samples)
            yield batch

    def _indices(self) -> Iterator[tuple[int, list[int]]]:
        """Of each batch its epoch and its samples."""
        for part in self._epochs.parts():
            mine = share_of_epoch(len(self._dataset), part, **self._who)
            for batch in np.array_split(mine, -(-len(mine) // self._batch_size)):
                yield part.epoch, batch.tolist()

    def _batches(self, asked: _Batches) -> Iterator[Any]:
        from torch.utils.data import DataLoader, TensorDataset

        if isinstance(self._dataset, TensorDataset) and not self._loader:
            # Already batched memory: one gather a tensor, instead of a collation sample by sample.
            return (self._dataset[indices] for indices in asked)
        return iter(DataLoader(self._dataset, batch_sampler=asked, **self._loader))


class _Batches:
    """The batch sampler of the DataLoader: one iterator over all epochs, so that its workers live through them.

    A loader with workers asks for batches before they are wanted; it gives them in the order in which it asked.
    """

    def __init__(self, indices: Iterator[tuple[int, list[int]]]) -> None:
        self._indices = indices
        self._asked: deque[tuple[int, int]] = deque()

    def __iter__(self) -> Iterator[list[int]]:
        for epoch, batch in self._indices:
            self._asked.append((epoch, len(batch)))
            yield batch

    def oldest(self) -> tuple[int, int]:
        """Epoch and samples of the batch that has come now."""
        return self._asked.popleft()
