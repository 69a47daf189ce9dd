"""Between the mapped slots and the model's device. On the CPU a slot *is* the tensor; on a GPU there is a way (`cuda.py`)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mpca.agent.cuda import CudaCarrier

__all__ = ["Carrier", "HostCarrier", "carrier_for"]

_Array = npt.NDArray[np.float32]


class Carrier(Protocol):
    """One shard at a time: ``outgoing, fill, deliver`` for a snapshot; ``incoming, use, taken`` for an install."""

    def outgoing(self, out: _Array) -> Tensor:
        """A flat device tensor to gather the shard into."""
        ...

    def deliver(self, out: _Array) -> None:
        """What was gathered lies in the slot when this returns."""
        ...

    def incoming(self, data: _Array) -> Tensor:
        """The arrival as a flat device tensor; on a GPU the slot has been copied when this returns."""
        ...

    def taken(self) -> None:
        """Everything that reads the arrival has been queued."""
        ...


class HostCarrier:
    """The model lies in host memory: the slot itself is the tensor."""

    def outgoing(self, out: _Array) -> Tensor:
        return torch.from_numpy(out)

    def deliver(self, out: _Array) -> None:
        pass

    def incoming(self, data: _Array) -> Tensor:
        return torch.from_numpy(data)

    def taken(self) -> None:
        pass


def carrier_for(device: torch.device, elements: int) -> Carrier:
    """The carrier for a model on `device` whose largest shard has so many elements."""
    if device.type == "cpu":
        return HostCarrier()
    if device.type == "cuda":
        return CudaCarrier(device, elements)
    raise ValueError(f"models on {device.type} cannot be exchanged: device={device}; use cpu or cuda")
