"""How the flat vector of a model maps to the tensors of its ``state_dict``, without torch.

The flat vector holds each trainable parameter once, then the floating-point buffers, and then the optimisers' state of methods
that exchange it, in float32. That state is no part of a state_dict. The other tensors of a state_dict are local (integer
buffers, frozen parameters); they are read from one agent as words (`storage.words`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from mpca.storage.tensors import DTYPES, RawTensor, dims
from mpca.storage.words import from_words, to_words, word_count

__all__ = ["ModelLayout"]

Vector = npt.NDArray[np.float32]
_WIRE = np.dtype("<f4")
_MODEL, _UPDATER = ("parameter", "buffer"), ("updater",)
_KINDS = _MODEL + _UPDATER


@dataclass(frozen=True)
class ModelLayout:
    """Names, shapes and offsets of the tensors in the flat vector."""

    tensors: tuple[tuple[str, tuple[int, ...], str, int], ...]  # (name, shape, "parameter" | "buffer" | "updater", offset)
    parameters: int  # elements of the flat vector that are parameters
    local: dict[str, tuple[str, tuple[int, ...], bytes]] = field(default_factory=dict)  # name -> (dtype, shape, bytes)
    tied: dict[str, str] = field(default_factory=dict)  # second name -> name
    #: For tensors that are not in row order (channels_last): name -> dimensions from the slowest in memory to the fastest.
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        rows: Sequence[Sequence[Any]],
        parameters: int,
        local: Mapping[str, Sequence[Any]] | None = None,
        tied: Mapping[str, str] | None = None,
    ) -> ModelLayout:
        """Make a layout from the fields of `wire.messages.Hello`.

        Args:
            rows: name, shape, kind, offset of each tensor, and its order in memory where it is not row order.
            parameters: number of elements of the flat vector that are parameters.
            local: local tensors by name: dtype, shape, and their number of bytes (as in Hello) or their bytes.
            tied: second name -> name.

        Raises:
            ValueError: the tensors do not follow one after the other, or not in the order parameters, buffers, updaters; or an
                order in memory is no permutation of the dimensions.
        """
        tensors = tuple((str(n), tuple(int(d) for d in shape), str(kind), int(at)) for n, shape, kind, at, *_ in rows)
        orders = {str(row[0]): tuple(int(d) for d in row[4]) for row in rows if len(row) > 4}
        for name, shape, _, _ in tensors:
            if name in orders and sorted(orders[name]) != list(range(len(shape))):
                raise ValueError(f"not a layout: tensor={name}, shape={shape}, order={orders[name]}")
        position, last = 0, "parameter"
        for name, shape, kind, offset in tensors:
            end = offset + math.prod(shape)
            fits = end <= parameters if kind == "parameter" else offset >= parameters
            last, before = kind, last
            if offset != position or not fits or kind not in _KINDS or _KINDS.index(kind) < _KINDS.index(before):
                raise ValueError(f"not a layout: tensor={name}, kind={kind}, offset={offset}, expected={position}")
            position = end
        if parameters != sum(math.prod(shape) for _, shape, kind, _ in tensors if kind == "parameter"):
            raise ValueError(f"not a layout: {parameters} elements of parameters, but the tensors have others")
        # bytes(n) gives n zeros, since Hello has only the number of bytes.
        kept = {name: (str(d), tuple(int(n) for n in shape), bytes(data)) for name, (d, shape, data) in (local or {}).items()}
        return cls(tensors, parameters, kept, dict(tied or {}), orders)

    @property
    def total(self) -> int:
        """Elements of the flat vector."""
        return sum(math.prod(shape) for _, shape, _, _ in self.tensors)

    @property
    def local_words(self) -> int:
        """Number of words of the local tensors, each a float32 element in the exchange."""
        return sum(word_count(len(data)) for _, _, data in self.local.values())

    def words(self) -> Vector:
        """The local tensors as words, one after the other."""
        out, position = np.empty(self.local_words, np.float32), 0
        for _, _, data in self.local.values():
            end = position + word_count(len(data))
            to_words(data, out[position:end])
            position = end
        return out

    def with_words(self, words: Vector) -> ModelLayout:
        """This layout with other values of the local tensors.

        Raises:
            ValueError: the words do not fit this model's local tensors.
        """
        if words.shape != (self.local_words,):
            raise ValueError(f"not the local tensors of this model: elements={words.shape}, expected={self.local_words}")
        local, position = {}, 0
        for name, (dtype, shape, data) in self.local.items():
            end = position + word_count(len(data))
            local[name] = dtype, shape, from_words(words[position:end], len(data))
            position = end
        return replace(self, local=local)

    def same_local(self, other: ModelLayout) -> bool:
        """Whether the other layout's local tensors have the same names, types and shapes."""
        mine, theirs = ([(name, one[:2]) for name, one in layout.local.items()] for layout in (self, other))
        return mine == theirs

    @property
    def digest(self) -> str:
        """sha256 of the model's names, kinds and shapes. Models with equal digests can exchange tensors."""
        text = json.dumps([self.parameters, [list(one) for one in self.model]])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def model(self) -> tuple[tuple[str, tuple[int, ...], str, int], ...]:
        """Those of `tensors` that the model has."""
        return tuple(one for one in self.tensors if one[2] in _MODEL)

    @property
    def updater(self) -> tuple[tuple[str, tuple[int, ...], str, int], ...]:
        """Those of `tensors` that the agents' optimisers have."""
        return self.tensors[len(self.model) :]

    def state_dict(self, flat: Vector) -> dict[str, npt.NDArray[Any]]:
        """The model's own ``state_dict`` as arrays. Tensors of the vector are views of `flat`; bfloat16 becomes float32."""
        self._check(flat, self.total)
        named: dict[str, npt.NDArray[Any]] = {}
        for name, shape, _, offset in self.model:
            named[name] = self._shaped(name, shape, flat[offset : offset + math.prod(shape)])
        for name, (dtype, shape, data) in self.local.items():
            if dtype == "bfloat16":  # numpy lacks this type; it is the upper half of a float32
                named[name] = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
            else:
                named[name] = np.frombuffer(bytearray(data), dtype).reshape(shape)
        for alias, name in self.tied.items():
            named[alias] = named[name]
        return named

    def model_tensors(self, *flat: Vector) -> dict[str, RawTensor]:
        """The whole ``state_dict`` under the model's own names, for a safetensors file.

        Tensors of the vector are float32, whatever their type in the model; local tensors keep their type.

        Args:
            flat: the flat vector, in one piece or in several that follow each other. A tensor within one piece is not copied.
        """
        named = self._raw(flat, self.total, _MODEL)
        for name, (dtype, shape, data) in self.local.items():
            named[name] = RawTensor(dtype, shape, data)
        for alias, name in self.tied.items():
            named[alias] = named[name]
        return named

    def trajectory_tensors(self, flat: Vector) -> dict[str, RawTensor]:
        """The tensors of a vector of parameters without buffers, under the parameters' names."""
        return self._raw((flat,), self.parameters, ("parameter",))

    def updater_tensors(self, flat: Vector) -> dict[str, RawTensor]:
        """The optimisers' state, with the names PARAMETER/KEY."""
        return self._raw((flat,), self.total, _UPDATER)

    def flat(self, named: Mapping[str, RawTensor]) -> Vector:
        """The whole vector from the tensors of a model's file, and of one with the optimisers' state, if the layout has any.

        Raises:
            ValueError: a tensor is missing, or has another shape.
        """
        return self._gather(named, self.total, _KINDS)

    def flat_parameters(self, named: Mapping[str, RawTensor]) -> Vector:
        """The vector of the parameters, from the tensors of a file; the reverse of `trajectory_tensors`.

        Raises:
            ValueError: a tensor is missing, or has another shape.
        """
        return self._gather(named, self.parameters, ("parameter",))

    def rows(self) -> list[list[Any]]:
        """Rows as in Hello: name, shape, kind, offset, and the order in memory where it is not row order."""
        return [
            [name, list(shape), kind, offset] + ([list(self.orders[name])] if name in self.orders else [])
            for name, shape, kind, offset in self.tensors
        ]

    def to_json(self) -> dict[str, Any]:
        """The layout for a manifest, without the bytes of local tensors, which are in the model's file."""
        return {
            "tensors": self.rows(),
            "parameters": self.parameters,
            "local": {name: [dtype, list(shape)] for name, (dtype, shape, _) in self.local.items()},
            "tied": dict(self.tied),
        }

    @classmethod
    def from_json(cls, values: Any, named: Mapping[str, RawTensor] | None = None) -> ModelLayout:
        """The layout of a manifest.

        Args:
            values: result of `to_json`, from a file that may be damaged.
            named: the tensors of the model's file, with the local ones' bytes; None: local tensors have no bytes.

        Raises:
            ValueError: the values are no layout, or the file holds other tensors.
        """
        try:
            rows = [
                (_name(name), dims(shape), kind, offset, *(dims(order) for order in orders))
                for name, shape, kind, offset, *orders in values["tensors"]
            ]
            local = {_name(name): (_name(dtype), dims(shape)) for name, (dtype, shape) in values["local"].items()}
            tied = {_name(alias): _name(name) for alias, name in values["tied"].items()}
            parameters = values["parameters"]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a layout: {type(error).__name__}: {error}") from None
        if any(type(number) is not int for number in (parameters, *(row[3] for row in rows))):
            raise ValueError("not a layout: an offset is no integer")
        names = [*(row[0] for row in rows), *local]
        if len({*names, *tied}) != len(names) + len(tied):
            raise ValueError("not a layout: two tensors have one name")
        if not names or not set(tied.values()) <= set(names):
            raise ValueError("not a layout: a name is tied to none")
        for name, (dtype, shape) in local.items():
            if dtype not in DTYPES:
                raise ValueError(f"not a layout: tensor={name!r}, dtype={dtype!r}")
            if named is not None and (name not in named or (named[name].dtype, named[name].shape) != (dtype, shape)):
                raise ValueError(f"tensor is missing or of another shape: name={name!r}, shape={shape}")
        held = {name: (dtype, shape, bytes(named[name].data) if named else b"") for name, (dtype, shape) in local.items()}
        return cls.of(rows, parameters, held, tied)

    def _raw(self, flat: Sequence[Vector], total: int, kinds: tuple[str, ...]) -> dict[str, RawTensor]:
        if any(one.ndim != 1 for one in flat) or sum(one.size for one in flat) != total:
            raise ValueError(f"vector is not of this model: shapes={[one.shape for one in flat]}, elements={total}")
        wire = [np.ascontiguousarray(one, _WIRE) for one in flat]
        starts = [0, *accumulate(one.size for one in wire)]
        raw = {}
        for name, shape, kind, offset in self.tensors:
            if kind in kinds:
                end = offset + math.prod(shape)
                parts = [one[max(0, offset - at) : max(0, end - at)] for at, one in zip(starts, wire, strict=False)]
                parts = [one for one in parts if one.size]
                whole = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, _WIRE), *parts])
                rows = np.ascontiguousarray(self._shaped(name, shape, whole))
                raw[name] = RawTensor("float32", shape, rows.reshape(-1).view(np.uint8).data)
        return raw

    def _shaped(self, name: str, shape: tuple[int, ...], part: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A tensor as a view of its part of the flat vector, in which its elements are in the order of memory."""
        order = self.orders.get(name)
        if order is None:
            return part.reshape(shape)
        return part.reshape([shape[d] for d in order]).transpose(np.argsort(order))

    @staticmethod
    def _check(flat: Vector, total: int) -> None:
        if flat.shape != (total,):
            raise ValueError(f"vector is not of this model: shape={flat.shape}, elements={total}")

    def _gather(self, named: Mapping[str, RawTensor], total: int, kinds: tuple[str, ...]) -> Vector:
        wanted = [row for row in self.tensors if row[2] in kinds]
        for name, shape, _, _ in wanted:  # before memory is allocated, since a damaged layout may ask for too much
            if name not in named or named[name].dtype != "float32" or named[name].shape != shape:
                raise ValueError(f"tensor is missing or of another shape: name={name!r}, shape={shape}")
        flat = np.empty(total, np.float32)
        for name, shape, _, offset in wanted:
            count = math.prod(shape)
            self._shaped(name, shape, flat[offset : offset + count])[...] = np.frombuffer(named[name].data, _WIRE).reshape(
                shape
            )
        return flat


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"not a name: {str(value)[:80]}")
    return value
