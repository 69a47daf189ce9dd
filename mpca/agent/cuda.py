"""All code for CUDA: the device for an agent's model, copies of shards between a GPU and the mapped slots, and nvJPEG.

No other file names `torch.cuda` (a test checks this), so all code that needs a GPU is in this file, and `make test-gpu` tests
it. An agent sees one GPU (`gpus.py`), as number 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mpca.errors import EnvironmentRefused
from mpca.extras import extras

__all__ = [
    "CudaCarrier",
    "CudaJpegs",
    "device_of",
    "first_gpu",
    "make_current",
    "name_of",
    "random_state",
    "refused_when_full",
    "set_random_state",
    "settle",
]

_Array = npt.NDArray[np.float32]


def device_of(name: str) -> torch.device:
    """The device for a value of `cluster.device`; "cuda" is the one GPU that this agent sees."""
    device = torch.device(name)
    return torch.device(device.type, 0) if device.type == "cuda" and device.index is None else device


def make_current(device: torch.device) -> None:
    """Make this device the default of "cuda"; does nothing for the CPU.

    Raises:
        EnvironmentRefused: torch finds no GPU.
    """
    if device.type != "cuda":
        return
    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        raise EnvironmentRefused(
            f"torch finds no GPU on this node: torch={torch.__version__}, {built}; look at nvidia-smi there, install a torch "
            "that fits its driver, or train on the CPU by cluster.device=cpu"
        )
    torch.cuda.set_device(device)


def name_of(device: torch.device) -> str:
    """What the maker calls it; "cpu" for the CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def settle(device: torch.device) -> None:
    """Wait until the device has done what it was given; the CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def random_state(device: torch.device) -> Tensor | None:
    """State of the GPU's own random numbers, in host memory; None for the CPU, whose are torch's."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def set_random_state(device: torch.device, held: Tensor | None) -> None:
    """Set what `random_state` gave. One of another kind of device says nothing of this one."""
    if device.type == "cuda" and held is not None:
        torch.cuda.set_rng_state(held, device)


def first_gpu() -> torch.device:
    """The first GPU, or the CPU where there is none; for a train function that runs alone."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


@contextmanager
def refused_when_full(device: torch.device, size_bytes: int) -> Iterator[None]:
    """Wraps allocations of the exchange on a GPU, so that running out of memory there is not blamed on the user's tensors.

    Raises:
        EnvironmentRefused: the allocation does not fit.
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
    """The `Carrier` for a model on a GPU.

    A shard is first gathered on the device (fast, in order with the training kernels). A second stream copies it to pinned
    host memory, and from there it is copied into the slot. Events order the two streams: the thread waits for its own copy,
    never for the whole device. Each staging buffer is made once, holds one shard, and is never freed, so no memory is reused
    while the other stream still needs it.
    """

    def __init__(self, device: torch.device, elements: int) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._out_device = torch.empty(elements, device=device)
        self._in_device = torch.empty(elements, device=device)
        self._out_host = torch.empty(elements, pin_memory=True)
        self._in_host = torch.empty(elements, pin_memory=True)
        self._gathered = torch.cuda.Event()  # training stream: the shard is in _out_device
        self._delivered = torch.cuda.Event()  # our stream: the shard is in _out_host
        self._uploaded = torch.cuda.Event()  # our stream: the arrived shard is in _in_device
        self._used = torch.cuda.Event()  # training stream: _in_device may be written again
        self._used.record(torch.cuda.current_stream(device))
        self._uploaded.record(self._stream)

    def outgoing(self, out: _Array) -> Tensor:
        return self._out_device[: out.size]  # free, since `deliver` waits for its copy

    def deliver(self, out: _Array) -> None:
        self._gathered.record(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._gathered)
            self._out_host[: out.size].copy_(self._out_device[: out.size], non_blocking=True)
            self._delivered.record(self._stream)
        self._delivered.synchronize()
        np.copyto(out, self._out_host[: out.size].numpy())

    def incoming(self, data: _Array) -> Tensor:
        self._uploaded.synchronize()  # the upload before must have left _in_host; usually it has
        np.copyto(self._in_host[: data.size].numpy(), data)
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._used)
            self._in_device[: data.size].copy_(self._in_host[: data.size], non_blocking=True)
            self._uploaded.record(self._stream)
        torch.cuda.current_stream(self._device).wait_event(self._uploaded)
        return self._in_device[: data.size]

    def taken(self) -> None:
        self._used.record(torch.cuda.current_stream(self._device))


class CudaJpegs:
    """The `mpca.data.device_decode.Jpegs` of a GPU: torchvision's nvJPEG, on a stream of its own.

    Raises:
        EnvironmentRefused: the installed torchvision does not decode on this GPU.
    """

    def __init__(self, device: torch.device) -> None:
        with extras():
            import torchvision
            from torchvision.io import ImageReadMode, decode_jpeg, encode_jpeg
        # Since 0.29 each call says that another package will have it. A filter holds for all threads, unlike `catch_warnings`.
        warnings.filterwarnings("ignore", "The image decoding and encoding capabilities of TorchVision", DeprecationWarning)
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._decode, self._mode = decode_jpeg, ImageReadMode.RGB
        try:
            self([encode_jpeg(torch.zeros(3, 8, 8, dtype=torch.uint8)).numpy().tobytes()], lambda _, image: image)
        except (AttributeError, RuntimeError, TypeError) as error:  # before 0.20 it takes no lists there
            said = str(error).partition("\n")[0]
            raise EnvironmentRefused(
                f"torchvision does not decode JPEGs on this GPU: torchvision={torchvision.__version__}, {said}; install 0.20 "
                "or newer, built for CUDA as torch is, or decode on the CPU by data.decoder=cpu"
            ) from error

    def __call__(self, jpegs: Sequence[bytes], cut: Callable[[int, Tensor], Tensor]) -> Tensor:
        given = [torch.frombuffer(bytearray(one), dtype=torch.uint8) for one in jpegs]
        with torch.cuda.stream(self._stream):
            images = self._decode(given, self._mode, self._device)
            return torch.stack([cut(number, image) for number, image in enumerate(images)]).cpu()  # waits for this stream alone
