"""Data sets that a configuration can name, and an agent's share of one (`share.py`).

Not for knowing who the agent is: `mpca.shard` (package `agent`) does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from mpca.checks import keywords, nearest, refused
from mpca.config.sections import DataConfig
from mpca.extras import require

if TYPE_CHECKING:  # importing the table of names must not cost a torch import
    from torch.utils.data import TensorDataset

    from mpca.data.stream import Streamed

__all__ = ["DATA_SETS", "DataSet", "check", "check_decoder", "load", "own_options"]


@dataclass(frozen=True, slots=True)
class DataSet:
    """One data set by name. Both functions take the section's other keys as keyword-only arguments with defaults."""

    load: Callable[..., TensorDataset | Streamed]  # (split, seed of the split, *, keys)
    samples: Callable[..., dict[str, int]]  # (*, keys) -> samples by split; ConfigError for data that cannot be used
    splits: tuple[str, ...] = ("train", "test")


def _digits(split: str, seed: int) -> TensorDataset:
    from mpca.data.digits import digits

    return digits(split, seed)


def _digits_samples() -> dict[str, int]:
    require("sklearn")
    return {"train": 1437, "test": 360}


def _cifar10(split: str, seed: int, *, path: str = "", flip_test: bool = True) -> TensorDataset:
    from mpca.data.cifar10 import cifar10

    return cifar10(split, seed, path, flip_test)


def _cifar10_samples(*, path: str = "", flip_test: bool = True) -> dict[str, int]:
    from mpca.data.cifar10_files import samples

    return samples(path)


def _imagenet(
    split: str = "",
    seed: int = 0,
    *,
    path: str = "",
    workers: int = 1,
    read_ahead: str = "64MiB",
    cache: str = "0B",
    crop: int = 224,
    shorter_edge: int = 256,
    test_view: str = "random",
    decoder: str = "cpu",
) -> Any:
    """Load a split; without one, count the records of each split. One function does both, so the keys are written once."""
    from mpca.data.imagenet import imagenet, options, samples

    chosen = options(workers, read_ahead, cache, crop, shorter_edge, test_view, decoder)
    return imagenet(split, seed, path, chosen) if split else samples(path)


def _vectors(split: str = "", seed: int = 0, *, path: str = "", read_ahead: str = "64MiB", cache: str = "0B") -> Any:
    """Load or count, as `_imagenet` does."""
    from mpca.data.imagenet import imagenet, options, samples

    chosen = options(1, read_ahead, cache, 1, 1, "centre")
    return imagenet(split, seed, path, chosen, numbers=True) if split else samples(path, numbers=True)


def _generated(name: str) -> DataSet:
    """A data set of `generated.py`."""

    def load(split: str, seed: int) -> TensorDataset:
        import torch
        from torch.utils.data import TensorDataset

        from mpca.data.generated import GENERATED

        return TensorDataset(*map(torch.from_numpy, GENERATED[name](split, seed)))

    def samples() -> dict[str, int]:
        from mpca.data.generated import SAMPLES

        return SAMPLES[name]

    return DataSet(load, samples)


#: `data.name` of a configuration -> data set.
DATA_SETS: dict[str, DataSet] = {
    "cifar10": DataSet(_cifar10, _cifar10_samples, ("train", "validation", "test")),
    "digits": DataSet(_digits, _digits_samples),
    "imagenet": DataSet(_imagenet, _imagenet, ("train", "validation", "test")),
    "mixture": _generated("mixture"),
    "vectors": DataSet(_vectors, _vectors, ("train", "validation", "test")),
    "warped-digits": _generated("warped-digits"),
}


def own_options(section: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a [data] section that are the data set's own."""
    return {key: value for key, value in section.items() if key not in _EVERYBODYS}


_EVERYBODYS = {one.name for one in fields(DataConfig)}


def check(name: str, agents: int, options: Mapping[str, Any] | None = None) -> None:
    """Check a configuration's data set before an agent is started.

    Args:
        name: `data.name`, a key of `DATA_SETS`.
        agents: number of agents that share the training split.
        options: keys of the [data] section; common ones are ignored.

    Raises:
        ConfigError: no such data set or option, data that cannot be used, or more agents than samples.
        EnvironmentRefused: a package that the data set needs is not installed.
    """
    one = _named(name)
    samples = one.samples(**keywords(one.samples, "data", options or {}, _EVERYBODYS))["train"]
    if samples < agents:
        rule = f"fewer samples than agents: data.name = {name!r} has {samples} for training; use {samples} agents or fewer"
        raise refused("cluster.agents", agents, rule)


def check_decoder(section: Mapping[str, Any], device: str) -> bool:
    """Whether a [data] section has a GPU decode images.

    Args:
        section: keys of [data].
        device: of the agents, as `cluster.device`.

    Raises:
        ConfigError: it does, and agents have none.
    """
    if section.get("decoder") != "cuda":
        return False
    if not device.startswith("cuda"):
        rule = f"agents have no GPU: cluster.device = {device!r}; train on one by cluster.device = 'cuda', or set it to 'cpu'"
        raise refused("data.decoder", "cuda", rule)
    return True


def load(name: str, split: str, seed: int = 0, **options: Any) -> TensorDataset | Streamed:
    """Load one split of a named data set. Equal arguments give equal splits.

    Args:
        name: a key of `DATA_SETS`.
        split: one of the data set's splits.
        seed: decides how the data set is split, where it has no splits of its own.
        options: keys of the [data] section; common ones are ignored.

    Returns:
        A map-style data set of tensors, or a split that can be streamed.

    Raises:
        ConfigError: no such data set or option, or data that cannot be used.
        ValueError: the data set has no such split.
    """
    one = _named(name)
    own = keywords(one.load, "data", options, _EVERYBODYS)
    if split not in one.splits:
        raise ValueError(f"unknown split: split={split!r}; one of {', '.join(one.splits)}")
    return one.load(split, seed, **own)


def _named(name: str) -> DataSet:
    if name not in DATA_SETS:
        raise refused("data.name", name, f"no such data set; {nearest(name, DATA_SETS)}")
    return DATA_SETS[name]
