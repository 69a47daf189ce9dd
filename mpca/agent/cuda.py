"""All code for CUDA: the device for an agent's model, copies of shards between a GPU and the mapped slots, and nvJPEG.

No other file names `torch.cuda` (a test checks this), so all code that needs a GPU is in this file, and `make test-gpu` tests
it. An agent sees one GPU (`gpus.py`), as number 0.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mpca.agent.trainer import Wait
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

_log = logging.getLogger("mpca.agent")
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
    """The `Carrier` for a model on a GPU. The training's thread waits for no copy over the bus, and its kernels only for an
    arrival that is still on its way when the GPU gets to them.

    A shard is gathered on the device, in order with the training kernels. A second stream copies it from there into the slot;
    a third one brings what arrives. The slots' memory is pinned, so that the GPU reads and writes it by itself (on an H100 at
    55 GB/s, where a processor that copies between a slot and other pinned memory does 12). Events order the streams. Each
    staging buffer is made once, holds one shard, and is never freed, so no memory is reused while another stream needs it.
    """

    def __init__(self, device: torch.device, elements: int, slots: npt.NDArray[np.uint8] | None = None) -> None:
        self._device = device
        self._down, self._up = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self._out = torch.empty(elements, device=device)
        self._in = torch.empty(elements, device=device)
        self._pieces: dict[tuple[int, ...], list[Tensor]] = {}  # of _out: to cut it takes 0.3 ms for a third of a ResNet-152
        self._delivered = torch.cuda.Event()  # stream down: the newest shard has left _out
        self._used = torch.cuda.Event()  # training stream: the newest shard in _in was used
        if slots is not None:
            _pin(slots, device, self)

    def outgoing(self, out: _Array, sizes: tuple[int, ...]) -> list[Tensor]:
        torch.cuda.current_stream(self._device).wait_event(self._delivered)
        if sizes not in self._pieces:
            self._pieces[sizes] = list(self._out[: out.size].split(sizes))
        return self._pieces[sizes]

    def deliver(self, out: _Array) -> Wait | None:
        gathered, self._delivered = torch.cuda.Event(), torch.cuda.Event(blocking=True)
        gathered.record(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._down):
            self._down.wait_event(gathered)
            torch.from_numpy(out).copy_(self._out[: out.size], non_blocking=True)
            self._delivered.record(self._down)
        return self._delivered.synchronize

    def incoming(self, data: _Array) -> tuple[Tensor, Wait | None]:
        uploaded = torch.cuda.Event(blocking=True)
        with torch.cuda.stream(self._up):
            self._up.wait_event(self._used)
            self._in[: data.size].copy_(torch.from_numpy(data), non_blocking=True)
            uploaded.record(self._up)
        torch.cuda.current_stream(self._device).wait_event(uploaded)
        return self._in[: data.size], uploaded.synchronize

    def taken(self) -> None:
        self._used.record(torch.cuda.current_stream(self._device))


def _pin(memory: npt.NDArray[np.uint8], device: torch.device, owner: object) -> None:
    """Keep this memory where the GPU can reach it, for as long as `owner` is there. Without that each copy is right, but the
    thread that asks for it waits until the GPU has come to it."""
    runtime = torch.cuda.cudart()
    error = runtime.cudaHostRegister(memory.ctypes.data, memory.nbytes, 0)
    if error == runtime.cudaError.success:
        # Not at the process's end, where its memory goes anyway.
        weakref.finalize(owner, _let_go, memory).atexit = False
        return
    _log.warning(
        "the parameter slots cannot be pinned for the GPU: bytes=%d, error=%s; each exchange holds the training up until a "
        "shard is copied",
        memory.nbytes,
        runtime.cudaGetErrorString(error),
    )
    with contextlib.suppress(RuntimeError):  # CUDA tells an error once more, to the next kernel: not to one of the user's
        torch.zeros(1, device=device)


def _let_go(memory: npt.NDArray[np.uint8]) -> None:
    torch.cuda.cudart().cudaHostUnregister(memory.ctypes.data)


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
