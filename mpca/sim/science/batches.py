"""Which samples a simulated agent's runs read: the whole training split, again and again, in an order of the agent's own.

On a cluster the agents share the order of an epoch, so that one of them reads each sample once. Here each agent reads all
samples: the splits are much larger than what an agent reads in a comparison, so the difference is small, and agents need not
know of each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["Batches"]


class Batches:
    """The batches of one agent's runs. Runs of equal seeds read the same.

    Args:
        tensors: samples and labels of the training split.
        size: samples in a batch of one run.
        seeds: one a run.
        agent: its number.
        incarnation: of its process, which begins with another order.
    """

    def __init__(self, tensors: Sequence[Any], size: int, seeds: Sequence[int], agent: int, incarnation: int) -> None:
        self._samples, self._labels = tensors
        self._size, self._who = size, (agent, incarnation)
        different = sorted(set(seeds))
        self._seeds, self._row = different, [different.index(seed) for seed in seeds]
        self._epoch, self._next = -1, len(self._labels)
        self._order = np.zeros((0, 0), np.int64)

    def take(self) -> tuple[Any, Any]:
        """The next batch of each run: float32[R, size, ...] and int64[R, size]. What an epoch has over is left out."""
        if self._next + self._size > len(self._labels):
            self._epoch, self._next = self._epoch + 1, 0
            drawn = (np.random.default_rng((21, seed, *self._who, self._epoch)) for seed in self._seeds)
            self._order = np.stack([one.permutation(len(self._labels)) for one in drawn])
        index = self._order[self._row, self._next : self._next + self._size]
        self._next += self._size
        return self._samples[index], self._labels[index]
