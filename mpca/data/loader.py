"""Batches by torch's DataLoader, and what it cannot send to its workers."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pickle import PicklingError
from typing import Any

from torch.utils.data import DataLoader

from mpca.errors import ConfigError

__all__ = ["batches"]


def batches(dataset: Any, **options: Any) -> Iterator[Any]:
    """Iterate over a DataLoader with these options.

    Raises:
        ConfigError: its workers are spawned, and the data set (a lambda in it, a class of the train function's), collate_fn or
            worker_init_fn cannot be pickled for them.
    """
    loader = DataLoader(dataset, **options)
    try:
        return iter(loader)
    except (AttributeError, PicklingError, TypeError) as error:
        method = (loader.multiprocessing_context or multiprocessing).get_start_method()
        if not loader.num_workers or method == "fork":
            raise
        raise ConfigError(
            f"the data set, collate_fn or worker_init_fn cannot be sent to data workers: {type(error).__name__}: {error}; "
            f"{method} makes them; leave it to fork (no multiprocessing_context), or define them without lambdas in a module "
            "that agents can import"
        ) from error
