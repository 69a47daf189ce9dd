"""Between the mapped slots and the model's device. On the CPU a slot *is* the tensor; on a GPU there is a way to go.

On a GPU a shard is gathered on the device first (fast, in order with the training kernels), crosses to pinned host
memory on a stream of its own, and is copied into the slot. Events order the two streams: the thread waits for its own
copy and never for the whole device. Staging buffers are made once, hold one shard, and are never freed, so no tensor can
be recycled while the other stream still uses it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["Carrier", "CudaCarrier", "HostCarrier", "carrier_for"]

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


class CudaCarrier:
    """The model lies on a GPU."""

    def __init__(self, device: torch.device, elements: int) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._out_device = torch.empty(elements, device=device)
        self._in_device = torch.empty(elements, device=device)
        self._out_host = torch.empty(elements, pin_memory=True)
        self._in_host = torch.empty(elements, pin_memory=True)
        self._gathered = torch.cuda.Event()  # training stream: the shard is in _out_device
        self._delivered = torch.cuda.Event()  # our stream: it is in _out_host
        self._uploaded = torch.cuda.Event()  # our stream: the arrival is in _in_device
        self._used = torch.cuda.Event()  # training stream: _in_device may be written again
        self._used.record(torch.cuda.current_stream(device))
        self._uploaded.record(self._stream)

    def outgoing(self, out: _Array) -> Tensor:
        return self._out_device[: out.size]  # free: the last delivery was waited for

    def deliver(self, out: _Array) -> None:
        self._gathered.record(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._gathered)
            self._out_host[: out.size].copy_(self._out_device[: out.size], non_blocking=True)
            self._delivered.record(self._stream)
        self._delivered.synchronize()
        np.copyto(out, self._out_host[: out.size].numpy())

    def incoming(self, data: _Array) -> Tensor:
        self._uploaded.synchronize()  # the upload before has left _in_host; long ago, as a rule
        np.copyto(self._in_host[: data.size].numpy(), data)
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._used)
            self._in_device[: data.size].copy_(self._in_host[: data.size], non_blocking=True)
            self._uploaded.record(self._stream)
        torch.cuda.current_stream(self._device).wait_event(self._uploaded)
        return self._in_device[: data.size]

    def taken(self) -> None:
        self._used.record(torch.cuda.current_stream(self._device))


def carrier_for(device: torch.device, elements: int) -> Carrier:
    """The carrier for a model on `device` whose largest shard has so many elements."""
    if device.type == "cpu":
        return HostCarrier()
    if device.type == "cuda":
        return CudaCarrier(device, elements)
    raise ValueError(f"models on {device.type} cannot be exchanged: device={device}; use cpu or cuda")
