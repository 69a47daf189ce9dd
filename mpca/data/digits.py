"""scikit-learn's bundled handwritten digits: 1,797 images of 8 x 8, ten classes, no download.

The split is stratified and depends on the seed alone, so that every agent, the evaluator and a later attempt of the run
see the same 360 test images. Pixels are standardised with the training split's mean and deviation.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import TensorDataset

__all__ = ["TEST_IMAGES", "digits"]

TEST_IMAGES = 360


def digits(split: str, seed: int) -> TensorDataset:
    """The "train" (1,437) or "test" (360) images, float32[n, 1, 8, 8], with their labels, int64[n]."""
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        images.astype(np.float32), labels, test_size=TEST_IMAGES, random_state=seed, stratify=labels
    )
    mean, deviation = train_x.mean(), train_x.std()
    chosen_x, chosen_y = (train_x, train_y) if split == "train" else (test_x, test_y)
    pixels = torch.from_numpy((chosen_x - mean) / deviation).reshape(-1, 1, 8, 8)
    return TensorDataset(pixels, torch.from_numpy(chosen_y.astype(np.int64)))
