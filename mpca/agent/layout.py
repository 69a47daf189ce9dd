"""Which tensors of a model are exchanged, in which order, and which stay local. Reads a model; moves nothing.

The flat vector is float32: all parameters that require gradients, in `named_parameters` order, a tied one once; then
floating-point buffers that are in the `state_dict`. A parameter without a gradient yet is exchanged like any other.
Frozen parameters and integer buffers stay local, and are told once (`Layout.local`) so that a whole `state_dict` can be
saved. What cannot be exchanged truthfully is refused with a sentence that names it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mpca.algorithm import ShardPlan
from mpca.errors import ConfigError

__all__ = ["LOCAL_LIMIT_BYTES", "Buffer", "Entry", "Layout", "read_layout"]

_log = logging.getLogger("mpca.agent")

#: Local tensors travel in Hello, a frame of at most 64 MiB; a frozen backbone that is larger is not sent.
LOCAL_LIMIT_BYTES = 48 << 20


@dataclass(frozen=True, slots=True)
class Buffer:
    """Where a buffer hangs in the model. A module may assign a new tensor to it, so it is looked up at each exchange."""

    owner: nn.Module
    key: str

    @property
    def tensor(self) -> Tensor:
        found = self.owner._buffers[self.key]
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of the flat vector."""

    name: str
    shape: tuple[int, ...]
    kind: str  # "parameter" or "buffer"
    offset: int  # elements before it in the flat vector
    size: int  # elements
    source: nn.Parameter | Buffer

    @property
    def tensor(self) -> Tensor:
        return self.source.tensor if isinstance(self.source, Buffer) else self.source


@dataclass(frozen=True)
class Layout:
    """The flat vector of one model."""

    entries: tuple[Entry, ...]
    parameters: int  # elements that are parameters; the rest are buffers
    total: int
    device: torch.device
    local: dict[str, list[Any]]  # as in Hello: name -> [dtype, shape, bytes]
    tied: dict[str, str]  # as in Hello: alias -> name

    def plan(self, shards: int, layer_aligned: bool) -> ShardPlan:
        """Where the shards are cut."""
        if layer_aligned:
            return ShardPlan.layer_aligned([entry.size for entry in self.entries], self.parameters, shards)
        return ShardPlan.equal(self.total, self.parameters, shards)

    def rows(self) -> list[list[Any]]:
        """As in Hello."""
        return [[entry.name, list(entry.shape), entry.kind, entry.offset] for entry in self.entries]

    def sha256(self) -> str:
        """Hash of the flat vector, buffers included: equal when agents start from the same x_0."""
        digest = hashlib.sha256()
        for entry in self.entries:
            digest.update(entry.tensor.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
        return digest.hexdigest()


def read_layout(model: nn.Module) -> Layout:
    """The layout of `model` as it is now.

    Raises:
        ConfigError: nothing to train, or a tensor that cannot be exchanged.
    """
    tied: dict[str, str] = {}
    parameters = list(_trainable(model, tied))
    if not parameters:
        raise ConfigError(
            "the model has no trainable parameters: parameters=0; give attach a model in which at least one parameter "
            "has requires_grad=True"
        )
    buffers = list(_buffers(model, tied))
    device = _one_device([(name, p) for name, p in parameters] + [(name, one.tensor) for name, one in buffers])
    entries, offset = [], 0
    for kind, named in (("parameter", parameters), ("buffer", buffers)):
        for name, source in named:
            tensor = source.tensor if isinstance(source, Buffer) else source
            entries.append(Entry(name, tuple(tensor.shape), kind, offset, tensor.numel(), source))
            offset += tensor.numel()
    count = sum(p.numel() for _, p in parameters)
    return Layout(tuple(entries), count, offset, device, _local(model, {*tied, *(entry.name for entry in entries)}), tied)


def _trainable(model: nn.Module, tied: dict[str, str]) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters to exchange. Two that share their memory are one, whether as one object or by assigned data."""
    first: dict[Any, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if not parameter.requires_grad:
            continue
        _check_parameter(name, parameter)
        place = (parameter.data_ptr(), parameter.shape) if parameter.numel() else id(parameter)
        if place in first:
            tied[name] = first[place]
            continue
        first[place] = name
        yield name, parameter


def _check_parameter(name: str, parameter: Tensor) -> None:
    if parameter.is_meta or isinstance(parameter, nn.parameter.UninitializedParameter):
        raise ConfigError(f"a parameter has no storage yet: parameter={name}; run one batch through the model, or load it")
    where = f"parameter={name}, dtype={parameter.dtype}, shape={list(parameter.shape)}"
    if parameter.layout is not torch.strided:
        raise ConfigError(f"a parameter is sparse: {where}, layout={parameter.layout}; use a dense parameter")
    if parameter.is_complex():
        raise ConfigError(f"a parameter is complex: {where}; hold its real and imaginary parts in real parameters")
    if parameter.dtype in (torch.bfloat16, torch.float16):
        raise ConfigError(
            f"a parameter has half precision: {where}; the pull towards the joint model vanishes in it: keep the "
            "parameters in float32 and compute in half precision with torch.autocast"
        )
    if parameter.dtype != torch.float32:
        raise ConfigError(f"a parameter is not float32: {where}; call model.float() before attach")
    if not parameter.is_contiguous():
        raise ConfigError(
            f"a parameter is not contiguous: {where}, strides={list(parameter.stride())}; "
            "call .contiguous() on its data, and leave out memory_format=torch.channels_last"
        )


def _buffers(model: nn.Module, tied: dict[str, str]) -> Iterator[tuple[str, Buffer]]:
    """Floating-point buffers that a state_dict holds."""
    first: dict[int, str] = {}
    for prefix, module in model.named_modules():
        for key, tensor in module._buffers.items():
            if tensor is None or key in module._non_persistent_buffers_set or not tensor.is_floating_point():
                continue
            name = f"{prefix}.{key}" if prefix else key
            if id(tensor) in first:
                tied[name] = first[id(tensor)]
                continue
            if not tensor.is_contiguous():
                raise ConfigError(
                    f"a buffer is not contiguous: buffer={name}, strides={list(tensor.stride())}; register it with "
                    ".contiguous(), or with persistent=False if it need not be saved"
                )
            first[id(tensor)] = name
            yield name, Buffer(module, key)


def _one_device(named: list[tuple[str, Tensor]]) -> torch.device:
    name, tensor = named[0]
    for other, one in named:
        if one.device != tensor.device:
            raise ConfigError(
                f"the model lies on several devices: {name} on {tensor.device}, {other} on {one.device}; "
                "put it on one, mpca.device()"
            )
    return tensor.device


def _local(model: nn.Module, exchanged: set[str]) -> dict[str, list[Any]]:
    """What a state_dict holds beside the flat vector."""
    local: dict[str, list[Any]] = {}
    left = LOCAL_LIMIT_BYTES
    for name, value in model.state_dict().items():
        if name in exchanged or not isinstance(value, Tensor) or value.layout is not torch.strided:
            continue
        size = value.numel() * value.element_size()
        if size > left:
            _log.warning("left out of saved models: tensor=%s, bytes=%d, limit_bytes=%d", name, size, LOCAL_LIMIT_BYTES)
            continue
        left -= size
        plain = value.detach().cpu().contiguous().reshape(-1)
        local[name] = [str(value.dtype).removeprefix("torch."), list(value.shape), plain.view(torch.uint8).numpy().tobytes()]
    return local
