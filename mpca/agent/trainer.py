"""The port between the agent's state machine and whatever trains: a torch model (`torch_trainer`), integers in the simulator.

The flat vector is float32: all trainable parameters once (tied ones once), then floating-point buffers. Shards behind the
method's own are what stays local, as words: read and replaced, never averaged nor pulled.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

__all__ = ["Trainer"]


class Trainer(Protocol):
    """A flat view of one model. Called only between two batches."""

    bounds: list[int]  # shard edges in elements
    parameters: int  # elements before this index are parameters, the rest buffers

    def pull(self, pulls: tuple[tuple[int, float], ...]) -> None:
        """Displace parameters towards the installed targets (eq. 7), before the next gradient: (shard, alpha) each."""
        ...

    def snapshot(self, shard: int, out: np.ndarray) -> None:
        """Copy the shard into `out` (float32, the mapped slot)."""
        ...

    def install(self, shard: int, data: np.ndarray, version: int, mode: str) -> None:
        """Take an arrival in: what the method says for "install", the model's own state for "replace".

        `data` is the mapped slot: it must have been copied when this returns.
        """
        ...

    def reset_optimizer(self) -> None:
        """Put the optimiser's state back to what it was at `attach`: it is of parameters that were thrown away."""
        ...
