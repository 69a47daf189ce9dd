"""The computed data sets: the same numbers for everybody, equal classes, and as hard as their text says."""

from __future__ import annotations

import os
import subprocess
import sys
from zlib import crc32

import numpy as np
import pytest
import torch

from mpca import data
from mpca.data.generated import GENERATED, SAMPLES

NAMES = sorted(GENERATED)

_PRINT_CHECKSUM = """
import sys
from zlib import crc32
from mpca.data.generated import GENERATED
samples, labels = GENERATED[sys.argv[1]]("test", 5)
print(crc32(samples.tobytes()), crc32(labels.tobytes()))
"""


@pytest.mark.parametrize("name", NAMES)
def test_the_table_gives_both_splits_with_equally_frequent_classes(name: str) -> None:
    for split, count in data.DATA_SETS[name].samples().items():
        samples, labels = data.load(name, split, 3).tensors
        assert samples.dtype == torch.float32
        assert len(samples) == count == SAMPLES[name][split]
        assert torch.bincount(labels).tolist() == [count // 10] * 10
        assert abs(float(samples.mean())) < 0.02
        assert abs(float(samples.std()) - 1) < 0.02


@pytest.mark.parametrize("name", NAMES)
def test_another_process_draws_the_same_numbers(name: str) -> None:
    samples, labels = GENERATED[name]("test", 5)
    command = [sys.executable, "-c", _PRINT_CHECKSUM, name]
    environment = {**os.environ, "PYTHONHASHSEED": "77", "OMP_NUM_THREADS": "1"}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert told == [str(crc32(samples.tobytes())), str(crc32(labels.tobytes()))]


@pytest.mark.parametrize("name", NAMES)
def test_splits_and_seeds_share_no_sample(name: str) -> None:
    train, test, other = GENERATED[name]("train", 0)[0], GENERATED[name]("test", 0)[0], GENERATED[name]("test", 1)[0]
    drawn = np.concatenate([train, test, other]).reshape(len(train) + len(test) + len(other), -1)
    assert len(np.unique(drawn, axis=0)) == len(drawn)


def test_the_best_classifier_of_the_mixture_is_wrong_for_half_a_percent() -> None:
    samples, labels = GENERATED["mixture"]("test", 0)
    centres = np.random.default_rng(11).standard_normal((10, 12, 32), np.float32)
    points = samples.astype(np.float64) * (1 + 0.9**2) ** 0.5
    squares = ((points[:, None, None, :] - centres) ** 2).sum(axis=-1)  # [n, classes, clusters]
    likelihood = np.exp(-(squares - squares.min(axis=(1, 2), keepdims=True)) / (2 * 0.9**2)).sum(axis=2)
    assert 0.002 < (likelihood.argmax(axis=1) != labels).mean() < 0.008


def test_seeds_draw_samples_of_one_task() -> None:
    """The means of classes stay where they are, to the sampling's error."""
    for name in NAMES:
        first, second = (GENERATED[name]("train", seed) for seed in (0, 1))
        for label in range(10):
            means = [samples[labels == label].mean(axis=0) for samples, labels in (first, second)]
            assert np.abs(means[0] - means[1]).max() < 0.15
