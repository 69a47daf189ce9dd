"""The stratified split, held against scikit-learn's own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from mpca import data
from mpca.data.splits import stratified_split


@pytest.mark.parametrize("seed", range(25))
def test_it_is_the_split_of_scikit_learn(seed: int) -> None:
    chance = np.random.default_rng(seed)
    labels = chance.integers(0, chance.integers(2, 9), size=int(chance.integers(60, 400)))
    test_size = int(chance.integers(10, len(labels) // 2))
    theirs = train_test_split(np.arange(len(labels)), test_size=test_size, random_state=seed, stratify=labels)
    for ours, other in zip(stratified_split(labels, test_size, seed), theirs, strict=True):
        assert ours.tolist() == other.tolist()


def test_equal_remainders_are_drawn_by_the_same_lot() -> None:
    labels = np.repeat(np.arange(7), 10)  # 33 of 70: each class has a remainder of 5/7
    theirs = train_test_split(np.arange(70), test_size=33, random_state=5, stratify=labels)
    assert [part.tolist() for part in stratified_split(labels, 33, 5)] == [part.tolist() for part in theirs]


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_digits_are_those_of_scikit_learn(split: str) -> None:
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        images.astype(np.float32), labels, test_size=360, random_state=11, stratify=labels
    )
    x, y = (train_x, train_y) if split == "train" else (test_x, test_y)
    pixels, classes = data.load("digits", split, 11).tensors
    assert np.array_equal(pixels.numpy().reshape(-1, 64), (x - train_x.mean()) / train_x.std())
    assert classes.tolist() == y.tolist()


def test_reading_them_imports_no_scikit_learn() -> None:
    program = "import sys; from mpca import data; data.load('digits', 'train', 0); print('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
