"""A stand-in of one GPU, for machines without one: `torch.cuda`, and tensors that say that they lie on "cuda:0".

They lie in host memory, and their storage carries a mark. What the real one refuses is refused, in its words: a device without
an index or that is not there, operations between host and device, the values of a device tensor without `.cpu()`, more
memory than there is. Copies on a stream beside the current one are done as late as events allow, so that a wait that is
missing shows as wrong numbers.

What it cannot show: whether kernels compute what they should, half precision, and waits that are missing on the current
stream, whose work is done at once here. For that there is `make test-gpu` on a GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.cuda._utils import _get_device_index
from torch.overrides import TorchFunctionMode

__all__ = ["TOTAL_BYTES", "StandIn"]

TOTAL_BYTES = 1 << 30
GPU = torch.device("cuda", 0)
#: Takes tensors of both kinds on a real one too.
_WORKING = threading.RLock()  # one for all streams, as each may wait for another
_BETWEEN = {"copy_", "_foreach_copy_", "__set__", "__get__", "__setitem__", "_has_compatible_shallow_copy_type"}


class Stream:
    """Copies that wait until somebody asks for them."""

    def __init__(self, device: Any = None) -> None:
        self.device = torch.device("cuda", _get_device_index(device, optional=True))
        self._waiting: list[Callable[[], None]] = []
        self._done = 0

    def put(self, work: Callable[[], None]) -> None:
        with _WORKING:
            self._waiting.append(work)

    @property
    def end(self) -> int:
        """How much has been put."""
        with _WORKING:
            return self._done + len(self._waiting)

    def run(self, upto: int) -> None:
        """Do what was put first, as far as `upto`."""
        with _WORKING, torch._C.DisableTorchFunction(), torch.no_grad():
            while self._done < upto:
                self._waiting.pop(0)()
                self._done += 1

    def wait_event(self, event: Event) -> None:
        self.put(event.synchronize)

    def synchronize(self) -> None:
        self.run(self.end)

    def is_capturing(self) -> bool:
        return False


class CurrentStream(Stream):
    """The one that training goes on: all that is put is done at once."""

    def put(self, work: Callable[[], None]) -> None:
        super().put(work)
        self.run(self.end)


class Event:
    """A place in a stream."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False) -> None:
        self._stream: Stream | None = None
        self._upto = 0

    def record(self, stream: Stream | None = None) -> None:
        if not isinstance(stream, Stream):
            raise TypeError(f"argument 'stream' must be torch.cuda.Stream, not {type(stream).__name__}")
        self._stream, self._upto = stream, stream.end

    def synchronize(self) -> None:
        """As the real one, nothing when it was never recorded."""
        if self._stream is not None:
            self._stream.run(self._upto)


class Runtime:
    """`torch.cuda.cudart()`: host memory that is pinned."""

    class cudaError(Enum):
        success = 0
        cudaErrorInvalidValue = 1
        cudaErrorHostMemoryAlreadyRegistered = 712

    def __init__(self) -> None:
        self._pinned: dict[int, int] = {}  # address -> its end

    def cudaHostRegister(self, address: int, size: int, flags: int) -> cudaError:
        if any(start < address + size and address < end for start, end in self._pinned.items()):
            return self.cudaError.cudaErrorHostMemoryAlreadyRegistered
        self._pinned[address] = address + size
        return self.cudaError.success

    def cudaHostUnregister(self, address: int) -> cudaError:
        found = self._pinned.pop(address, None)
        return self.cudaError.cudaErrorInvalidValue if found is None else self.cudaError.success

    def cudaGetErrorString(self, error: cudaError) -> str:
        return error.name

    def pins(self, tensor: Tensor) -> bool:
        """Whether all of it is pinned."""
        start = tensor.data_ptr()
        return any(first <= start and start + tensor.nbytes <= end for first, end in self._pinned.items())


class StandIn(TorchFunctionMode):
    """Entered, there is a GPU; what was replaced of `torch.cuda` is put back when it is left."""

    def __init__(self) -> None:
        super().__init__()
        self._default = CurrentStream(GPU)
        self._streams = [self._default]
        self._limit = TOTAL_BYTES
        self._runtime = Runtime()
        self._saved: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> StandIn:
        fakes = {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "set_device": self._set_device,
            "cudart": lambda: self._runtime,
            "Stream": Stream,
            "Event": Event,
            "stream": self._stream_context,
            "current_stream": lambda device=None: self._streams[-1],
            "synchronize": lambda device=None: [one.synchronize() for one in self._streams],
            "mem_get_info": lambda device=None: (self._limit, TOTAL_BYTES),
            "set_per_process_memory_fraction": self._set_fraction,
            "is_current_stream_capturing": lambda: False,
            "is_bf16_supported": lambda including_emulation=True: True,
        }
        replaced = [(torch.cuda, name, fake) for name, fake in fakes.items()]
        if hasattr(torch, "accelerator"):  # by which newer optimisers ask whether a graph is being captured
            replaced.append((torch.accelerator, "current_stream", fakes["current_stream"]))
        self._saved = [(module, name, getattr(module, name)) for module, name, _ in replaced]
        for module, name, fake in replaced:
            setattr(module, name, fake)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for module, name, real in self._saved:
            setattr(module, name, real)

    # ---- torch.cuda ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _set_device(device: Any) -> None:
        """With the real one's own reading of what is meant."""
        _refuse_ordinal(_get_device_index(device))

    @contextmanager
    def _stream_context(self, stream: Stream) -> Iterator[None]:
        self._streams.append(stream)
        try:
            yield
        finally:
            self._streams.pop()

    def _set_fraction(self, fraction: float, device: Any = None) -> None:
        self._limit = int(fraction * TOTAL_BYTES)

    # ---- tensors -------------------------------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return self._attribute(func, args)
        if name in ("to", "cuda", "cpu"):
            return self._to(func, name, args, kwargs)
        if name in ("numpy", "__array__") and _on(args[0]):
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
            )
        if name == "copy_" and kwargs.get("non_blocking") and len(self._streams) > 1:
            return self._copy(*args)
        if kwargs.get("device") is not None:
            return self._make(func, args, kwargs)
        pinned = kwargs.pop("pin_memory", False)
        result = func(*args, **kwargs)
        if pinned:
            result.untyped_storage().pinned = True
        given = [_on(one) for one in _tensors((args, kwargs)) if one.dim() or _on(one)]
        if any(given) and name not in _BETWEEN:
            if not all(given):
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! ({name})"
                )
            _mark(result)
        return result

    @staticmethod
    def _attribute(func: Any, args: Any) -> Any:
        (tensor,), what, result = args[:1], func.__self__.__name__, func(*args)
        if not _on(tensor):
            return result
        _mark(result)  # .grad, .data, .T
        return {"device": GPU, "is_cuda": True, "is_cpu": False}.get(what, result)

    @staticmethod
    def _to(func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """To another device, or of another type or order on the same one."""
        tensor, rest, copy = args[0], args[1:], kwargs.pop("copy", False)
        if name != "to":
            wanted, dtype, order = torch.device("cpu" if name == "cpu" else GPU), None, None
        else:
            rest = tuple(one.device if isinstance(one, Tensor) else one for one in rest)
            wanted, dtype, _, order = torch._C._nn._parse_to(*rest, **kwargs)
        on = _on(tensor) if wanted is None else wanted.type == "cuda"
        if wanted is not None and wanted.index is not None:
            _refuse_ordinal(wanted.index)
        made = tensor.to(dtype=dtype or tensor.dtype, copy=copy, **({} if order is None else {"memory_format": order}))
        if on != _on(tensor) and made.untyped_storage() is tensor.untyped_storage():
            made = made.clone()
        if on:
            _mark(made)
        return made

    def _make(self, func: Any, args: Any, kwargs: Any) -> Any:
        device = torch.device(kwargs.pop("device"))
        if device.type != "cuda":
            return func(*args, device=device, **kwargs)
        _refuse_ordinal(device.index or 0)
        if getattr(func, "__name__", "") in ("empty", "zeros"):  # of others "meta" imports the compiler
            size = func(*args, device="meta", **kwargs).nbytes
            if size > self._limit:
                raise torch.cuda.OutOfMemoryError(
                    f"CUDA out of memory. Tried to allocate {size} bytes. GPU 0 has a total capacity of {TOTAL_BYTES} bytes of "
                    f"which {self._limit} bytes is free."
                )
        return _mark(func(*args, device="cpu", **kwargs))

    def _copy(self, to: Tensor, source: Tensor) -> Tensor:
        """On a stream beside: later, when the host's end is pinned, else at once, as the real one."""
        host = source if _on(to) else to
        if getattr(host.untyped_storage(), "pinned", False) or self._runtime.pins(host):
            self._streams[-1].put(lambda: to.copy_(source))
        else:
            self._streams[-1].synchronize()
            to.copy_(source)
        return to


def _refuse_ordinal(index: int) -> None:
    if index:
        raise RuntimeError("CUDA error: invalid device ordinal")


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


def _on(tensor: Tensor) -> bool:
    return getattr(tensor.untyped_storage(), "on_gpu", False)


def _mark(result: Any) -> Any:
    for one in _tensors(result):
        one.untyped_storage().on_gpu = True
    return result
