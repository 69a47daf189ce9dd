"""CIFAR-10 as the paper trains on it (section 6.2): 45,000 images to train on, 5,000 withheld, 10,000 to test on.

Means are those of the training split. A training image gets a new patch and flip each time that it is read, drawn from the
agent's own seed (in a data worker: from the worker's). The paper flips test images too. Here they are flipped once, by the seed
of the split, so that all evaluations see the same images. Not for the files: `cifar10_files.py`.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset

from mpca.data.augment import flip, random_patches, subtract_mean
from mpca.data.cifar10_files import TEST, TRAIN, read, withheld

__all__ = ["Augmented", "cifar10"]


def cifar10(split: str, seed: int, path: str, flip_test: bool) -> TensorDataset:
    """Load one split: float32[n, 3, 32, 32] with labels, int64[n]. The split "train" is an `Augmented`.

    Raises:
        ConfigError: files that are missing or damaged.
    """
    images, labels = read(path, TRAIN)
    kept_back = withheld(labels, seed)
    trained = images[~kept_back]
    mean = trained.mean(axis=(0, 2, 3), dtype=np.float64).astype(np.float32)
    if split == "train":
        return Augmented(trained, labels[~kept_back], mean)
    images, labels = (images[kept_back], labels[kept_back]) if split == "validation" else read(path, TEST)
    if flip_test:
        images = flip(images, np.random.default_rng((4, seed)))
    return TensorDataset(torch.from_numpy(subtract_mean(images, mean)), torch.from_numpy(labels.astype(np.int64)))


class Augmented(TensorDataset):
    """Images that are cropped, flipped and centred when they are read. An index may be a list of indices.

    `tensors` holds the raw images and labels: uint8[n, 3, 32, 32] and int64[n].
    """

    def __init__(self, images: Any, labels: Any, mean: Any) -> None:
        super().__init__(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)))
        self._mean = mean
        self._process = 0
        self._chance: np.random.Generator | None = None

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        images, labels = self.tensors
        raw = images.numpy()[index]  # torch takes 7 ms to gather 64 images of bytes, numpy 0.1
        chance = self._generator()
        views = flip(random_patches(raw.reshape(-1, *raw.shape[-3:]), chance), chance)
        return torch.from_numpy(subtract_mean(views, self._mean)).reshape(raw.shape), labels[index]

    def _generator(self) -> np.random.Generator:
        """A generator seeded from torch's seed, anew in each process, since data workers begin as copies of one another."""
        if self._chance is None or self._process != os.getpid():
            self._process, self._chance = os.getpid(), np.random.default_rng(torch.initial_seed())
        return self._chance
