"""Data sets that a configuration can name, and an agent's share of one (`share.py`).

Not for knowing who the agent is: `mpca.shard` (package `agent`) does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpca.checks import nearest, refused

if TYPE_CHECKING:  # importing the table of names must not cost a torch import
    from torch.utils.data import TensorDataset

__all__ = ["DATA_SETS", "BuiltIn", "check", "load"]


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A data set that comes with an installed package."""

    load: Callable[[str, int], TensorDataset]  # (split, seed of the split)
    samples: dict[str, int]  # by split


def _digits(split: str, seed: int) -> TensorDataset:
    from mpca.data.digits import digits

    return digits(split, seed)


#: `data.name` of a configuration -> data set.
DATA_SETS: dict[str, BuiltIn] = {"digits": BuiltIn(_digits, {"train": 1437, "test": 360})}


def check(name: str, agents: int) -> None:
    """Raises ConfigError for a name that there is not, and for more agents than samples."""
    if name not in DATA_SETS:
        raise refused("data.name", name, f"no such data set; {nearest(name, DATA_SETS)}")
    samples = DATA_SETS[name].samples["train"]
    if samples < agents:
        rule = f"fewer samples than agents: data.name = {name!r} has {samples} for training; use {samples} agents or fewer"
        raise refused("cluster.agents", agents, rule)


def load(name: str, split: str, seed: int = 0) -> TensorDataset:
    """One split of a built-in data set, as a map-style data set of tensors. Equal arguments give equal bytes."""
    if name not in DATA_SETS:
        raise refused("data.name", name, f"no such data set; {nearest(name, DATA_SETS)}")
    if split not in DATA_SETS[name].samples:
        raise ValueError(f"unknown split: split={split!r}; one of {', '.join(DATA_SETS[name].samples)}")
    return DATA_SETS[name].load(split, seed)
