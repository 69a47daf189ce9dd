"""One agent's share of a map-style data set: which samples, in which order, epoch after epoch. No communication.

All agents cut the same permutation of an epoch, drawn from (seed, epoch), so that together they see every sample of it
exactly once, whatever they know of each other. The order inside a share is drawn from (seed, agent, incarnation, epoch):
a replacement does not walk in its predecessor's steps.

Not for who the agent is: `mpca.shard` fills that in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mpca.errors import ConfigError

__all__ = ["Share", "share_of_epoch"]

_Indices = npt.NDArray[np.int64]


def share_of_epoch(samples: int, *, seed: int, agent: int, agents: int, epoch: int, incarnation: int) -> _Indices:
    """Indices of one agent's samples of one epoch, in the order in which it sees them.

    Example:
        >>> shares = [share_of_epoch(5, seed=1, agent=a, agents=2, epoch=0, incarnation=0) for a in range(2)]
        >>> sorted(int(i) for share in shares for i in share)
        [0, 1, 2, 3, 4]
    """
    # The leading number keeps the two streams apart: SeedSequence takes (1, 0) and (1, 0, 0) for the same.
    everybody = np.random.default_rng((1, seed, epoch)).permutation(samples)
    mine = everybody[agent::agents]
    np.random.default_rng((2, seed, epoch, agent, incarnation)).shuffle(mine)
    return mine


class Share:
    """Endless batches of one agent's share; ends when `stopping` says so, or after `epochs`.

    The batches of an epoch are as equal as they can be, none larger than `batch_size`: a last batch of one sample would
    be refused by BatchNorm, and leaving it out would leave samples out.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        seed: int,
        agent: int,
        agents: int,
        incarnation: int,
        stopping: Callable[[], bool] = lambda: False,
        count: Callable[[int], None] = lambda samples: None,
        epochs: int | None = None,
        **loader: Any,
    ) -> None:
        """`loader` goes to `torch.utils.data.DataLoader` (num_workers, collate_fn, pin_memory, ...)."""
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise ConfigError(f"not a map-style data set: {type(dataset).__name__} lacks __len__ or __getitem__")
        if batch_size < 1:
            raise ConfigError(f"batch_size must be 1 or more: batch_size={batch_size}")
        if len(dataset) < agents:
            raise ConfigError(
                f"fewer samples than agents: samples={len(dataset)}, agents={agents}; "
                "use a larger data set or fewer agents (cluster.agents)"
            )
        self._dataset = dataset
        self._batch_size = batch_size
        self._who = {"seed": seed, "agent": agent, "agents": agents, "incarnation": incarnation}
        self._stopping = stopping
        self._count = count
        self._epochs = epochs
        self._loader = loader

    def indices(self) -> Iterator[list[int]]:
        """The samples of each batch, for ever or for `epochs`."""
        epoch = 0
        while self._epochs is None or epoch < self._epochs:
            mine = share_of_epoch(len(self._dataset), epoch=epoch, **self._who)
            for batch in np.array_split(mine, -(-len(mine) // self._batch_size)):
                yield batch.tolist()
            epoch += 1

    def __iter__(self) -> Iterator[Any]:
        for indices, batch in zip(self.indices(), self._batches(), strict=False):
            if self._stopping():
                return
            self._count(len(indices))
            yield batch

    def _batches(self) -> Iterator[Any]:
        from torch.utils.data import DataLoader, TensorDataset

        if isinstance(self._dataset, TensorDataset) and not self._loader:
            # Already batched memory: one gather a tensor, instead of a collation sample by sample.
            return (self._dataset[indices] for indices in self.indices())
        return iter(DataLoader(self._dataset, batch_sampler=_Batches(self), **self._loader))


class _Batches:
    """The batch sampler of the DataLoader: one iterator over all epochs, so that its workers live through them."""

    def __init__(self, share: Share) -> None:
        self._share = share

    def __iter__(self) -> Iterator[list[int]]:
        return self._share.indices()
