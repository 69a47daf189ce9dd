"""Moves shards between the mapped slots and the model's device. On the CPU a slot *is* the tensor; for a GPU see `cuda.py`."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mpca.agent.cuda import CudaCarrier
from mpca.agent.trainer import Wait

__all__ = ["Carrier", "HostCarrier", "carrier_for"]

_Array = npt.NDArray[np.float32]


class Carrier(Protocol):
    """Moves one shard at a time. Snapshot: `outgoing`, fill it, `deliver`. Install: `incoming`, use it, `taken`."""

    def outgoing(self, out: _Array, sizes: tuple[int, ...]) -> list[Tensor]:
        """Flat device tensors of these sizes, one behind the other, into which the caller gathers the shard."""
        ...

    def deliver(self, out: _Array) -> Wait | None:
        """Copy the gathered shard into the slot. Returns what waits until it is there; None: it is."""
        ...

    def incoming(self, data: _Array) -> tuple[Tensor, Wait | None]:
        """The arrived shard as a flat device tensor, and what waits until the slot may be written again; None: once the tensor
        was used."""
        ...

    def taken(self) -> None:
        """Note that all reads of the arrived shard are queued on the device."""
        ...


class HostCarrier:
    """For a model in host memory: the slot itself is the tensor."""

    def outgoing(self, out: _Array, sizes: tuple[int, ...]) -> list[Tensor]:
        return list(torch.from_numpy(out).split(sizes))

    def deliver(self, out: _Array) -> Wait | None:
        return None

    def incoming(self, data: _Array) -> tuple[Tensor, Wait | None]:
        return torch.from_numpy(data), None

    def taken(self) -> None:
        pass


def carrier_for(device: torch.device, elements: int, slots: npt.NDArray[np.uint8] | None = None) -> Carrier:
    """The carrier for a model on `device` whose largest shard has `elements` elements.

    `slots` is the memory of all slots, if what is copied lies there.

    Raises:
        ValueError: models on this kind of device cannot be exchanged.
    """
    if device.type == "cpu":
        return HostCarrier()
    if device.type == "cuda":
        return CudaCarrier(device, elements, slots)
    raise ValueError(f"models on {device.type} cannot be exchanged: device={device}; use cpu or cuda")
