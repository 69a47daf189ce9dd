"""Endless batches over a map-style data set of tensors: shuffled anew each epoch, from a seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, default_collate

__all__ = ["batches"]


def batches(dataset: Dataset, batch_size: int, seed: int) -> Iterator[Any]:
    """Yield batches for ever; who consumes them decides when it was enough.

    The last, smaller batch of an epoch is kept when there is no full one, and left out otherwise: a BatchNorm layer in
    training mode refuses a batch of one image.
    """
    samples = len(dataset)  # type: ignore[arg-type]
    if samples == 0:
        raise ValueError("the data set is empty: samples=0; an agent needs at least one")
    generator = torch.Generator().manual_seed(seed)
    batch_size = min(batch_size, samples)
    while True:
        order = torch.randperm(samples, generator=generator)
        for first in range(0, samples - batch_size + 1, batch_size):
            yield default_collate([dataset[int(i)] for i in order[first : first + batch_size]])
