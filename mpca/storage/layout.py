"""How the flat vector of a model maps to the tensors of its ``state_dict``, without torch.

The flat vector holds each trainable parameter once and then the floating-point buffers, in float32. What a state_dict
has beyond it (integer buffers, frozen parameters, second names of tied ones) comes along from the agent's Hello.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mpca.storage.tensors import RawTensor

__all__ = ["ModelLayout"]

Vector = npt.NDArray[np.float32]
_WIRE = np.dtype("<f4")


@dataclass(frozen=True)
class ModelLayout:
    """Names, shapes and places of the tensors in the flat vector."""

    tensors: tuple[tuple[str, tuple[int, ...], str, int], ...]  # (name, shape, "parameter" | "buffer", offset)
    parameters: int  # elements of the flat vector that are parameters
    local: dict[str, tuple[str, tuple[int, ...], bytes]] = field(default_factory=dict)  # name -> (dtype, shape, bytes)
    tied: dict[str, str] = field(default_factory=dict)  # second name -> name

    @classmethod
    def of(
        cls,
        rows: Sequence[Sequence[Any]],
        parameters: int,
        local: Mapping[str, Sequence[Any]] | None = None,
        tied: Mapping[str, str] | None = None,
    ) -> ModelLayout:
        """From the fields of `wire.messages.Hello`.

        Raises:
            ValueError: the tensors do not lie one after the other, or a buffer lies before a parameter.
        """
        tensors = tuple((str(n), tuple(int(d) for d in shape), str(kind), int(at)) for n, shape, kind, at in rows)
        position = 0
        for name, shape, kind, offset in tensors:
            end = offset + math.prod(shape)
            fits = end <= parameters if kind == "parameter" else kind == "buffer" and offset >= parameters
            if offset != position or not fits:
                raise ValueError(f"not a layout: tensor={name}, kind={kind}, offset={offset}, expected={position}")
            position = end
        kept = {name: (str(d), tuple(int(n) for n in shape), bytes(data)) for name, (d, shape, data) in (local or {}).items()}
        return cls(tensors, parameters, kept, dict(tied or {}))

    @property
    def total(self) -> int:
        """Elements of the flat vector."""
        return sum(math.prod(shape) for _, shape, _, _ in self.tensors)

    @property
    def digest(self) -> str:
        """sha256 of names, kinds and shapes: two models with the same one can take each other's flat vector."""
        text = json.dumps([self.parameters, [list(one) for one in self.tensors]])
        return hashlib.sha256(text.encode()).hexdigest()

    def state_dict(self, flat: Vector) -> dict[str, npt.NDArray[Any]]:
        """The model's own ``state_dict`` as arrays, those of the vector as views of `flat`; bfloat16 as float32."""
        self._check(flat, self.total)
        named: dict[str, npt.NDArray[Any]] = {}
        for name, shape, _, offset in self.tensors:
            named[name] = flat[offset : offset + math.prod(shape)].reshape(shape)
        for name, (dtype, shape, data) in self.local.items():
            if dtype == "bfloat16":  # the upper half of a float32, which numpy lacks
                named[name] = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
            else:
                named[name] = np.frombuffer(bytearray(data), dtype).reshape(shape)
        for alias, name in self.tied.items():
            named[alias] = named[name]
        return named

    def model_tensors(self, flat: Vector) -> dict[str, RawTensor]:
        """The whole ``state_dict`` under the model's own names, in the forms that a safetensors file takes.

        Tensors of the vector are float32, whatever they are in the model; local ones keep their type.
        """
        named = self._raw(flat, self.total, ("parameter", "buffer"))
        for name, (dtype, shape, data) in self.local.items():
            named[name] = RawTensor(dtype, shape, data)
        for alias, name in self.tied.items():
            named[alias] = named[name]
        return named

    def trajectory_tensors(self, flat: Vector) -> dict[str, RawTensor]:
        """A vector that has parameters alone, under the parameters' names."""
        return self._raw(flat, self.parameters, ("parameter",))

    def flat(self, named: Mapping[str, RawTensor]) -> Vector:
        """The whole vector from the tensors of a file. Raises ValueError when one is missing or of another shape."""
        return self._gather(named, self.total, ("parameter", "buffer"))

    def flat_parameters(self, named: Mapping[str, RawTensor]) -> Vector:
        """The parameters' part alone; the reverse of `trajectory_tensors`."""
        return self._gather(named, self.parameters, ("parameter",))

    def to_json(self) -> dict[str, Any]:
        """For a manifest; the bytes of local tensors are in the model's file and not repeated."""
        return {
            "tensors": [[name, list(shape), kind, offset] for name, shape, kind, offset in self.tensors],
            "parameters": self.parameters,
            "local": {name: [dtype, list(shape)] for name, (dtype, shape, _) in self.local.items()},
            "tied": dict(self.tied),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], named: Mapping[str, RawTensor]) -> ModelLayout:
        """The layout of a manifest, with its local tensors taken from the model's file."""
        local = {name: [dtype, shape, bytes(named[name].data)] for name, (dtype, shape) in values["local"].items()}
        return cls.of(values["tensors"], values["parameters"], local, values["tied"])

    def _raw(self, flat: Vector, total: int, kinds: tuple[str, ...]) -> dict[str, RawTensor]:
        self._check(flat, total)
        wire = np.ascontiguousarray(flat, _WIRE)
        return {
            name: RawTensor("float32", shape, wire[offset : offset + math.prod(shape)].view(np.uint8).data)
            for name, shape, kind, offset in self.tensors
            if kind in kinds
        }

    @staticmethod
    def _check(flat: Vector, total: int) -> None:
        if flat.shape != (total,):
            raise ValueError(f"vector is not of this model: shape={flat.shape}, elements={total}")

    def _gather(self, named: Mapping[str, RawTensor], total: int, kinds: tuple[str, ...]) -> Vector:
        flat = np.empty(total, np.float32)
        for name, shape, kind, offset in self.tensors:
            if kind in kinds:
                count = math.prod(shape)
                if name not in named or named[name].dtype != "float32" or named[name].shape != shape:
                    raise ValueError(f"tensor is missing or of another shape: name={name}, shape={shape}")
                flat[offset : offset + count] = np.frombuffer(named[name].data, _WIRE)
        return flat
