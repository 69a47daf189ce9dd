"""A stratified split into training and test set, equal to scikit-learn's, without importing scikit-learn.

The import would cost every agent 2.8 s of CPU for a few permutations. Draws are in the order of `train_test_split(...,
stratify=labels)`; the tests compare both.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["stratified_split"]

_Indices = npt.NDArray[np.int64]


def stratified_split(labels: _Indices, test_size: int, seed: int) -> tuple[_Indices, _Indices]:
    """Indices of the training and of the test set, each shuffled. Class shares in both are as equal as possible.

    Args:
        labels: int[n], the samples' classes.
        test_size: number of samples of the test set; all others go to the training set.
        seed: seed of numpy's `RandomState`, which scikit-learn uses too.
    """
    random = np.random.RandomState(seed)
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    members = np.split(np.argsort(classes, kind="stable"), np.cumsum(counts)[:-1])
    train_counts = _apportion(counts, len(labels) - test_size, random)
    test_counts = _apportion(counts - train_counts, test_size, random)
    train, test = [], []
    for of_class, trains, tests in zip(members, train_counts, test_counts, strict=True):
        shuffled = of_class[random.permutation(len(of_class))]
        train.append(shuffled[:trains])
        test.append(shuffled[trains : trains + tests])
    return random.permutation(np.concatenate(train)), random.permutation(np.concatenate(test))


def _apportion(counts: _Indices, draws: int, random: np.random.RandomState) -> _Indices:
    """Share `draws` samples out in proportion to `counts`: by largest remainder, and by lot among equal remainders."""
    exact = counts / counts.sum() * draws
    shares: _Indices = np.floor(exact).astype(np.int64)
    missing = int(draws - shares.sum())
    remainders = exact - shares
    for remainder in np.unique(remainders)[::-1]:
        if missing <= 0:
            break
        equal = np.flatnonzero(remainders == remainder)
        chosen = random.choice(equal, size=min(len(equal), missing), replace=False)
        shares[chosen] += 1
        missing -= len(chosen)
    return shares
