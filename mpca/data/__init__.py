"""Data sets that a configuration can name, and endless batches over one agent's share of them.

Not for knowing who the agent is: `mpca.shard` (package `agent`) takes the share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mpca.errors import ConfigError

if TYPE_CHECKING:  # importing the table of names must not cost a torch import
    from torch.utils.data import TensorDataset

__all__ = ["DATA_SETS", "SPLITS", "load"]

SPLITS = ("train", "test")


def _digits(split: str, seed: int) -> TensorDataset:
    from mpca.data.digits import digits

    return digits(split, seed)


#: `data.name` of a configuration -> loader (split, seed of the split).
DATA_SETS: dict[str, Callable[[str, int], TensorDataset]] = {"digits": _digits}


def load(name: str, split: str, seed: int = 0) -> TensorDataset:
    """One split of a built-in data set, as a map-style data set of tensors. Equal arguments give equal bytes."""
    if name not in DATA_SETS:
        raise ConfigError(f"unknown data set: data.name={name!r}; one of {', '.join(sorted(DATA_SETS))}")
    if split not in SPLITS:
        raise ValueError(f"unknown split: split={split!r}; one of {', '.join(SPLITS)}")
    return DATA_SETS[name](split, seed)
