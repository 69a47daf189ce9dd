"""scikit-learn's bundled handwritten digits: 1,797 images of 8 x 8, ten classes, no download.

The split is stratified and depends on the seed alone, so that every agent, the evaluator and a later attempt of the run
see the same 360 test images. Pixels are standardised with the training split's mean and deviation.
"""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import TensorDataset

from mpca.data.splits import stratified_split
from mpca.extras import require

__all__ = ["TEST_IMAGES", "digits"]

TEST_IMAGES = 360


def _read() -> np.ndarray:
    """Read float64[1797, 65]: 64 pixels of 0 to 16, and the label. Importing scikit-learn would cost 2.8 s of CPU."""
    require("sklearn")
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    with gzip.open(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        return np.loadtxt(file, delimiter=",")


def digits(split: str, seed: int) -> TensorDataset:
    """Load the "train" (1,437) or "test" (360) images, float32[n, 1, 8, 8], with their labels, int64[n]."""
    rows = _read()
    images, labels = rows[:, :-1].astype(np.float32), rows[:, -1].astype(np.int64)
    train, test = stratified_split(labels, TEST_IMAGES, seed)
    mean, deviation = images[train].mean(), images[train].std()
    chosen = train if split == "train" else test
    pixels = torch.from_numpy((images[chosen] - mean) / deviation).reshape(-1, 1, 8, 8)
    return TensorDataset(pixels, torch.from_numpy(labels[chosen]))
