"""The safetensors format. The package's own writer is not used, since its arguments differ between supported versions.

::

    0          8                 8 + H
    +----------+-----------------+---------------------------------
    | H (u64)  | JSON of H bytes | the tensors, one after the other
    +----------+-----------------+---------------------------------

The JSON maps a name to ``{"dtype": "F32", "shape": [...], "data_offsets": [begin, end]}``. Offsets count from the end of the
header, which is padded with spaces to a multiple of 8. Tensors with wide elements come first, so that all are aligned.
Tests read the files with the safetensors package. Tensors are raw bytes, since numpy lacks bfloat16.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mpca import strict_json
from mpca.storage.blocks import Piece

__all__ = ["DTYPES", "RawTensor", "dims", "dump", "parse", "pieces"]

#: numpy's and torch's names -> (safetensors' name, bytes of an element).
_DTYPES = {
    "float64": ("F64", 8),
    "int64": ("I64", 8),
    "uint64": ("U64", 8),
    "float32": ("F32", 4),
    "int32": ("I32", 4),
    "uint32": ("U32", 4),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "int16": ("I16", 2),
    "uint16": ("U16", 2),
    "int8": ("I8", 1),
    "uint8": ("U8", 1),
    "bool": ("BOOL", 1),
}
#: The types that a file can hold.
DTYPES = frozenset(_DTYPES)
_NAMES = {code: (name, width) for name, (code, width) in _DTYPES.items()}
#: numpy's limits, which hold even for empty arrays.
_MOST_DIMS, _MOST_ELEMENTS = 32, 1 << 60


@dataclass(frozen=True)
class RawTensor:
    """Elements in row order, little-endian."""

    dtype: str  # numpy's and torch's name: "float32", "bfloat16", "int64", ...
    shape: tuple[int, ...]
    data: Piece


def dump(tensors: Mapping[str, RawTensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a file.

    Raises:
        ValueError: as `pieces`.
    """
    return b"".join(pieces(tensors, metadata))


def pieces(tensors: Mapping[str, RawTensor], metadata: Mapping[str, str] | None = None) -> list[Piece]:
    """The bytes of a file in pieces, one behind the other: those of the tensors are their own, not copied.

    Raises:
        ValueError: the format lacks an element type, or a tensor's data do not fit its shape.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    position = 0
    parts: list[Piece] = []
    for name, one in sorted(tensors.items(), key=lambda item: (-_DTYPES.get(item[1].dtype, ("", 0))[1], item[0])):
        if one.dtype not in _DTYPES:
            raise ValueError(f"safetensors has no such type: tensor={name}, dtype={one.dtype}")
        code, width = _DTYPES[one.dtype]
        length = len(one.data) if isinstance(one.data, bytes) else one.data.nbytes
        if length != math.prod(one.shape) * width:
            raise ValueError(f"data do not fit the shape: tensor={name}, shape={one.shape}, bytes={length}")
        header[name] = {"dtype": code, "shape": list(one.shape), "data_offsets": [position, position + length]}
        position += length
        parts.append(one.data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *parts]


def parse(data: bytes) -> dict[str, RawTensor]:
    """The tensors of a file, as views of `data`. They must fill the bytes after the header, each byte once.

    Raises:
        ValueError: the file is no safetensors file, or is cut off.
    """
    begin = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or begin > len(data):
        raise ValueError(f"not a safetensors file: bytes={len(data)}")
    try:
        header = strict_json.loads(data[8:begin])
    except ValueError as error:
        raise ValueError(f"not a safetensors file: header: {error}") from None
    if not isinstance(header, dict):
        raise ValueError("not a safetensors file: the header is not a map")
    header.pop("__metadata__", None)
    view, tensors, ranges = memoryview(data)[begin:], {}, []
    for name, one in header.items():
        try:
            dtype, width = _NAMES[one["dtype"]]
            first, last = dims(one["data_offsets"])
            shape = dims(one["shape"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a safetensors file: tensor={name!r}: {type(error).__name__}: {error}") from None
        if not first <= last <= len(view) or last - first != math.prod(shape) * width:
            raise ValueError(f"not a safetensors file: tensor={name!r}, offsets={one['data_offsets']}, shape={shape}")
        tensors[name] = RawTensor(dtype, shape, view[first:last])
        ranges.append((first, last))
    at = 0
    for first, last in sorted(ranges):
        if first != at:
            raise ValueError(f"not a safetensors file: the tensors overlap or leave a gap at byte {min(first, at)}")
        at = last
    if at != len(view):
        raise ValueError(f"not a safetensors file: {len(view) - at} bytes belong to no tensor")
    return tensors


def dims(value: Any) -> tuple[int, ...]:
    """The sizes of an array's axes, from a list of JSON.

    Raises:
        ValueError: the value is no list of sizes, or no array can be that large.
    """
    if not isinstance(value, list) or any(type(one) is not int or one < 0 for one in value):
        raise ValueError(f"not a list of sizes: {str(value)[:80]}")
    if len(value) > _MOST_DIMS or math.prod(one or 1 for one in value) > _MOST_ELEMENTS:
        raise ValueError(f"no array is so large: {str(value)[:80]}")
    return tuple(value)
