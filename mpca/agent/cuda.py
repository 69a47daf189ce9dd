"""Everything of CUDA: the device that an agent's model belongs on, and how shards cross between a GPU and the mapped slots.

No other file names `torch.cuda` (a test looks), so that all that wants a GPU is on this page, and `make test-gpu` is for
it. An agent sees one GPU (`gpus.py`), which is number 0 for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mpca.errors import EnvironmentRefused

__all__ = ["CudaCarrier", "device_of", "first_gpu", "make_current", "refused_when_full"]

_Array = npt.NDArray[np.float32]


def device_of(name: str) -> torch.device:
    """The device that `cluster.device` names: "cuda" is the one GPU that this agent sees."""
    device = torch.device(name)
    return torch.device(device.type, 0) if device.type == "cuda" and device.index is None else device


def make_current(device: torch.device) -> None:
    """Have what is made on "cuda" lie on this device; nothing is to be done for the CPU.

    Raises:
        EnvironmentRefused: torch cannot use it here.
    """
    if device.type != "cuda":
        return
    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        raise EnvironmentRefused(
            f"torch finds no GPU on this node: torch={torch.__version__}, {built}; look at nvidia-smi there, install a torch "
            "that goes with its driver, or train on the CPU by cluster.device=cpu"
        )
    torch.cuda.set_device(device)


def first_gpu() -> torch.device:
    """For a function that runs alone: the first GPU, or the CPU where there is none."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


@contextmanager
def refused_when_full(device: torch.device, size_bytes: int) -> Iterator[None]:
    """Around what the exchange itself takes of a GPU's memory: the user's own tensors are not to blame.

    Raises:
        EnvironmentRefused: it does not fit.
    """
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        free, total = torch.cuda.mem_get_info(device)
        raise EnvironmentRefused(
            f"too little memory on the GPU for the exchange: need_bytes={size_bytes}, free_bytes={free}, total_bytes={total}; "
            "use a smaller model, or more shards (method.shards)"
        ) from error


class CudaCarrier:
    """The `Carrier` of a model on a GPU.

    A shard is gathered on the device first (fast, in order with the training kernels), crosses to pinned host memory on a
    stream of its own, and is copied into the slot. Events order the two streams: the thread waits for its own copy and never
    for the whole device. Staging buffers are made once, hold one shard, and are never freed, so no tensor can be recycled
    while the other stream still uses it.
    """

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
