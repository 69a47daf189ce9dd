"""What a train function returned, as data: the driver reads it and runs no code of it.

Packed in the agent, where a value of any other kind is refused by its place and type, and unpacked on the driver. The bytes are
msgpack. Numbers, texts, bytes, bools and None are themselves; all else is an array that begins with a tag:

    [0, item, ...]   list               [3, dtype, shape, bytes]   numpy array, in C order
    [1, item, ...]   tuple              [4, dtype, bytes]          numpy scalar
    [2, key, value, key, value, ...]    [5, dtype, shape, bytes]   torch tensor, in host memory and without its graph
"""

from __future__ import annotations

import sys
from typing import Any

import msgpack
import numpy as np

from mpca.errors import RemoteProtocolError
from mpca.wire.codec import MAX_FRAME_BYTES, MAX_NESTING

__all__ = ["MAX_BYTES", "pack", "unpack"]

#: What is packed travels in one message, beside its code and its field's name.
MAX_BYTES = MAX_FRAME_BYTES - 1024

_LIST, _TUPLE, _MAP, _ARRAY, _SCALAR, _TENSOR = range(6)
_PLAIN = (type(None), bool, int, float, str, bytes)  # exactly these: an enum that is a number too does not come back as one
_KINDS = "biufc"  # of numpy's dtypes: bools and numbers, never objects
_WHOLE_NUMBERS = range(-(1 << 63), 1 << 64)
_KEY_LENGTH = 60
_ALLOWED = (
    "return None, bools, numbers, texts, bytes, lists, tuples and dicts of these, numpy arrays and torch tensors; "
    "of another object return what it holds"
)


class _Packer:
    def __init__(self) -> None:
        self._bytes = 0
        self._torch = sys.modules.get("torch")  # a process that has not imported it has no tensor

    def pack(self, value: Any) -> bytes:
        packed: bytes = msgpack.packb(self._tagged(value, "returned", MAX_NESTING), use_bin_type=True)
        if len(packed) > MAX_BYTES:
            raise _too_large(len(packed))
        return packed

    def _tagged(self, value: Any, path: str, left: int) -> Any:
        """`path` is how the value is reached, and `left` how many containers deep it may still be."""
        kind = type(value)
        if kind in _PLAIN:
            return self._plain(value, path)
        if kind is np.ndarray or isinstance(value, np.generic):
            if value.dtype.kind not in _KINDS:
                raise _refused(path, f"{kind.__name__} of dtype {value.dtype}")
            self._count(value.nbytes)
            shape = [list(value.shape)] if kind is np.ndarray else []
            return [_ARRAY if shape else _SCALAR, value.dtype.str, *shape, value.tobytes()]
        if self._torch is not None and isinstance(value, self._torch.Tensor):
            return self._tensor(value, path)
        if left == 0:
            raise _refused(path, f"nested more than {MAX_NESTING} deep")
        if isinstance(value, list):
            return [_LIST, *(self._tagged(one, f"{path}[{n}]", left - 1) for n, one in enumerate(value))]
        if kind is tuple or (self._torch is not None and kind is self._torch.Size):  # not a namedtuple, which has names
            return [_TUPLE, *(self._tagged(one, f"{path}[{n}]", left - 1) for n, one in enumerate(value))]
        if isinstance(value, dict):
            return [_MAP, *(part for key, one in value.items() for part in self._item(key, one, path, left - 1))]
        raise _refused(path, f"of type {_name(kind)}")

    def _item(self, key: Any, value: Any, path: str, left: int) -> tuple[Any, Any]:
        if type(key) not in _PLAIN:
            raise _refused(f"a key of {path}", f"of type {_name(type(key))}")
        shown = repr(key)
        shown = shown if len(shown) <= _KEY_LENGTH else f"{shown[:_KEY_LENGTH]}..."
        return self._plain(key, f"a key of {path}"), self._tagged(value, f"{path}[{shown}]", left)

    def _plain(self, value: Any, path: str) -> Any:
        if type(value) is int and value not in _WHOLE_NUMBERS:
            raise _refused(path, "a whole number of more than 64 bits")
        if type(value) is str:
            try:
                value.encode()
            except UnicodeEncodeError:
                raise _refused(path, "a text with half of a surrogate pair") from None
        self._count(len(value) if type(value) in (str, bytes) else 1)
        return value

    def _tensor(self, value: Any, path: str) -> list[Any]:
        torch = self._torch
        assert torch is not None
        if value.layout is not torch.strided or value.is_quantized or value.is_nested or value.device.type == "meta":
            raise _refused(
                path, f"a tensor that is not of plain numbers in memory ({value.layout}, {value.dtype}, {value.device})"
            )
        self._count(value.numel() * value.element_size())  # before it is copied: a model on a GPU may be larger than this host
        data = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
        return [_TENSOR, str(value.dtype).removeprefix("torch."), list(value.shape), data.numpy().tobytes()]

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > MAX_BYTES:
            raise _too_large(self._bytes)


def pack(value: Any) -> bytes:
    """What the train function returned, as bytes.

    Raises:
        TypeError: something in it is of another kind; names its place and type.
        ValueError: it is over the limit.
    """
    return _Packer().pack(value)


def unpack(data: bytes) -> Any:
    """What `pack` was given: dicts and lists of a kind of their own are plain ones, and tensors are in host memory.

    Raises:
        RemoteProtocolError: these are not bytes of `pack`.
    """
    try:
        return _value(msgpack.unpackb(data, raw=False, strict_map_key=True), MAX_NESTING)
    except Exception as error:  # msgpack raises a dozen classes, numpy and torch some more
        raise RemoteProtocolError(f"not what an agent packs: bytes={len(data)}, {type(error).__name__}: {error}") from error


def _value(packed: Any, left: int) -> Any:
    if type(packed) is not list:
        if type(packed) not in _PLAIN:
            raise ValueError(f"a {type(packed).__name__} without its tag")
        return packed
    tag, *parts = packed
    if tag in (_ARRAY, _SCALAR, _TENSOR):
        return _numbers(tag, *parts)
    if left == 0:
        raise ValueError(f"nested more than {MAX_NESTING} deep")
    if tag not in (_LIST, _TUPLE, _MAP):
        raise ValueError(f"unknown tag: {tag!r}")
    if tag == _MAP:
        keys, values = parts[::2], parts[1::2]
        return dict(zip((_value(one, 0) for one in keys), (_value(one, left - 1) for one in values), strict=True))
    items = [_value(one, left - 1) for one in parts]
    return tuple(items) if tag == _TUPLE else items


def _numbers(tag: int, dtype: str, *shape_and_bytes: Any) -> Any:
    """An array, a scalar or a tensor; its memory is its own, and can be written."""
    *shapes, data = shape_and_bytes
    (shape,) = shapes or ([],)
    if type(dtype) is not str or type(data) is not bytes or any(type(one) is not int or one < 0 for one in shape):
        raise ValueError(f"no array: dtype={dtype!r}, shape={shape!r}")
    if tag == _TENSOR:
        return _made_tensor(dtype, shape, data)
    kind = np.dtype(dtype)
    if kind.kind not in _KINDS or kind.str != dtype:
        raise ValueError(f"no dtype of numbers: {dtype!r}")
    array = np.frombuffer(bytearray(data), kind)
    return array.reshape(shape) if tag == _ARRAY else array.reshape(())[()]


def _made_tensor(name: str, shape: list[int], data: bytes) -> Any:
    import torch

    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"no dtype of torch: {name!r}")
    flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return flat.reshape(shape)


def _refused(path: str, what: str) -> TypeError:
    return TypeError(f"what the train function returned cannot be sent to the driver: {path} is {what}; {_ALLOWED}")


def _too_large(size: int) -> ValueError:
    return ValueError(
        f"what the train function returned is too large: bytes={size}, limit={MAX_BYTES}; "
        "write it to a file and return the path"
    )


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
