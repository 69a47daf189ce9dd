"""The port between the agent's state machine and its model: a torch model (`torch_trainer`), or integers in the simulator.

The flat vector is float32: all trainable parameters (tied ones once), then floating-point buffers, then the optimisers' state,
if the method exchanges it. Shards after the method's own are the local tensors, as words: they are read and replaced, never
averaged or pulled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

__all__ = ["Later", "Trainer", "Wait"]

#: Returns when a device's copy between the model and a slot is done; any thread may call it, and more than once.
Wait = Callable[[], None]
#: Takes a `Wait` from a call that does not wait itself.
Later = Callable[[Wait], None]


class Trainer(Protocol):
    """A flat view of one model. Called only between two batches."""

    bounds: list[int]  # shard edges in elements
    parameters: int  # elements before this index are parameters, the rest buffers

    def pull(self, pulls: tuple[tuple[int, float], ...]) -> None:
        """Displace parameters towards the installed targets (eq. 7); pulls are (shard, alpha)."""
        ...

    def tilt(self, pulls: tuple[tuple[int, float], ...], optimizer: Any) -> None:
        """Tilt the gradients that this optimiser is about to use towards the installed targets (eq. 6)."""
        ...

    def snapshot(self, shard: int, out: np.ndarray, later: Later | None = None) -> None:
        """Copy the shard, as it is now, into `out` (float32, the mapped slot). Only with `later` may the copy go on after this
        call; `later` then gets what waits for it."""
        ...

    def install(self, shard: int, data: np.ndarray, version: int, mode: str, later: Later | None = None) -> None:
        """Apply an arrived shard: by the method's rule for "install"; as the new parameters for "replace".

        `data` is the mapped slot; this must copy it before it returns, unless `later` gets what waits for the copy.
        """
        ...

    def reset_optimizer(self) -> None:
        """Reset the optimiser to its state at `attach`: its present state belongs to parameters that were replaced."""
        ...

    def own(self) -> dict[str, Any]:
        """Everything of this trainer that `go_on` needs, for `agent.own_state`: tensors and numbers in plain containers."""
        ...

    def go_on(self, own: dict[str, Any]) -> None:
        """Be as `own` was.

        Raises:
            ConfigError: it is of another model.
        """
        ...
