"""One agent's share of a map-style data set: its samples and their order, for each epoch. Without communication.

All agents that begin an epoch cut the same permutation, drawn from (seed, epoch), so that together they see every sample
exactly once. The order inside a share is drawn from (seed, agent, incarnation, epoch), so a replacement has another order than
the agent before it.

Not for the agent's number (`mpca.shard` gives it), nor for the agents that begin an epoch: `epochs.py`.
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
    """Indices of one agent's samples of one epoch, in the agent's order.

    Args:
        samples: size of the data set.
        part: the epoch, the agent's rank in it, and the number of agents.
        seed: the run's seed; equal for all agents.
        agent: the agent's number.
        incarnation: counts the processes of this agent; with the agent's number it decides the order inside the share.

    Returns:
        int64[n], n = samples / part.world_size, rounded up or down.

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
    """Batches of one agent's share. An iteration ends with its epochs, or when `stopping` is true. One iteration at a time.

    The batches of an epoch have equal sizes, or differ by one sample; none is larger than `batch_size`. BatchNorm would refuse
    a last batch of one sample, and without that batch samples would be missing.
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
        """Make the batches.

        Args:
            dataset: has `__len__` and `__getitem__`, as torch's map-style data sets.
            batch_size: largest number of samples of a batch.
            seed: the run's seed; equal for all agents.
            incarnation: counts the processes of this agent.
            epochs: which epochs, and the agent's position in them.
            stopping: true when the run is ending.
            count: is called with the samples of each batch before the caller gets it.
            loader: arguments of `torch.utils.data.DataLoader` (num_workers, collate_fn, pin_memory, ...).

        Raises:
            ConfigError: not a map-style data set, `batch_size` below 1, or fewer samples than agents.
        """
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
        """Number of batches of an iteration. With ``epochs=None`` that of one epoch, which schedules need."""
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
        """Epoch and indices of each batch."""
        for part in self._epochs.parts():
            mine = share_of_epoch(len(self._dataset), part, **self._who)
            for batch in np.array_split(mine, -(-len(mine) // self._batch_size)):
                yield part.epoch, batch.tolist()

    def _batches(self, asked: _Batches) -> Iterator[Any]:
        from torch.utils.data import TensorDataset

        from mpca.data.loader import batches

        if isinstance(self._dataset, TensorDataset) and not self._loader:
            # Tensors are batched already: one gather per tensor replaces a collation of single samples.
            return (self._dataset[indices] for indices in asked)
        return batches(self._dataset, batch_sampler=asked, **self._loader)


class _Batches:
    """The batch sampler of the DataLoader: one iterator over all epochs, so that the loader's workers outlive an epoch.

    A loader with workers asks for batches ahead, and gives them in the order in which it asked.
    """

    def __init__(self, indices: Iterator[tuple[int, list[int]]]) -> None:
        self._indices = indices
        self._asked: deque[tuple[int, int]] = deque()

    def __iter__(self) -> Iterator[list[int]]:
        for epoch, batch in self._indices:
            self._asked.append((epoch, len(batch)))
            yield batch

    def oldest(self) -> tuple[int, int]:
        """Epoch and number of samples of the batch that the loader gives now."""
        return self._asked.popleft()
