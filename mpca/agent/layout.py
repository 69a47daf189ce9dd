"""Which tensors of a model are exchanged, in which order, and which stay local. Reads a model; moves nothing.

The flat vector is float32: all parameters that require gradients, in `named_parameters` order, tied ones once; then the
floating-point buffers of the `state_dict`; then, for a method that exchanges it, the optimisers' state. A tensor's elements are
in their order in memory; the layout states this order where it is not row order (channels_last). A parameter that has no
gradient yet is exchanged too. Frozen parameters and integer buffers stay local (`local_tensors.py`). A tensor that cannot be
exchanged correctly is refused by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mpca.agent.local_tensors import LocalTensors
from mpca.agent.optimizers import Optimizers, State
from mpca.agent.tensor_memory import check_overlaps, flat_view, is_dense, memory_order, memory_range
from mpca.algorithm import ShardPlan
from mpca.errors import ConfigError

__all__ = ["Buffer", "Entry", "Layout", "read_layout"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer's module and name. A module may assign a new tensor to it, so it is looked up at each exchange."""

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
    kind: str  # "parameter", "buffer" or "updater", an optimiser's state
    offset: int  # elements before it in the flat vector
    size: int  # elements
    order: tuple[int, ...]  # dimensions from the slowest in memory to the fastest
    source: nn.Parameter | Buffer | State

    @property
    def tensor(self) -> Tensor:
        return self.source.tensor if isinstance(self.source, (Buffer, State)) else self.source


@dataclass(frozen=True)
class Layout:
    """The flat vector of one model."""

    entries: tuple[Entry, ...]
    parameters: int  # elements that are parameters; the rest are buffers, and the optimisers' state
    total: int
    device: torch.device
    local: LocalTensors
    tied: dict[str, str]  # for Hello: alias -> name

    def plan(self, shards: int, layer_aligned: bool) -> ShardPlan:
        """The plan that cuts the vector into shards."""
        if layer_aligned:
            return ShardPlan.layer_aligned([entry.size for entry in self.entries], self.parameters, shards)
        return ShardPlan.equal(self.total, self.parameters, shards)

    def bounds(self, plan: ShardPlan) -> list[int]:
        """For Hello: the edges of the plan's shards, and then of the local tensors' shards; in elements."""
        return [*plan.bounds, *self.local.edges(self.total, max(plan.sizes))]

    def rows(self) -> list[list[Any]]:
        """For Hello: one row per tensor. The order in memory is stated only where it differs from that of the dimensions."""
        return [
            [entry.name, list(entry.shape), entry.kind, entry.offset]
            + ([list(entry.order)] if entry.order != tuple(range(len(entry.order))) else [])
            for entry in self.entries
        ]

    def sha256(self) -> str:
        """Hash of the flat vector, including buffers; agents with the same x_0 have equal hashes."""
        digest = hashlib.sha256()
        for entry in self.entries:
            digest.update(flat_view(entry.tensor).to("cpu", torch.float32).numpy().tobytes())
        return digest.hexdigest()


def read_layout(model: nn.Module, optimizers: Optimizers | None = None) -> Layout:
    """The layout of `model` as it is now, with the state of `optimizers`, if that is exchanged.

    Raises:
        ConfigError: the model has nothing to train, or a tensor that cannot be exchanged.
    """
    tied: dict[str, str] = {}
    parameters = list(_trainable(model, tied))
    if not parameters:
        raise ConfigError(
            "the model has no trainable parameters: parameters=0; attach needs a model in which at least one parameter "
            "has requires_grad=True"
        )
    buffers = list(_buffers(model, tied))
    tensors = [(name, p) for name, p in parameters] + [(name, one.tensor) for name, one in buffers]
    device = _one_device(tensors)
    check_overlaps(tensors)
    entries, offset = [], 0
    states = list(optimizers.states(parameters)) if optimizers is not None else []
    for kind, named in (("parameter", parameters), ("buffer", buffers), ("updater", states)):
        for name, source in named:
            tensor = source.tensor if isinstance(source, (Buffer, State)) else source
            entries.append(Entry(name, tuple(tensor.shape), kind, offset, tensor.numel(), memory_order(tensor), source))
            offset += tensor.numel()
    count = sum(p.numel() for _, p in parameters)
    _tie_frozen(model, tensors, tied)
    local = LocalTensors(model, {*tied, *(entry.name for entry in entries if entry.kind != "updater")})
    return Layout(tuple(entries), count, offset, device, local, tied)


def _trainable(model: nn.Module, tied: dict[str, str]) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters to exchange. Two parameters with the same memory count as one, as one object or by assigned data."""
    first: dict[Any, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if not parameter.requires_grad:
            continue
        _check_parameter(name, parameter)
        memory = (*memory_range(parameter), parameter.shape) if parameter.numel() else id(parameter)
        if memory in first:
            tied[name] = first[memory]
            continue
        first[memory] = name
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
    if not is_dense(parameter):
        raise ConfigError(
            f"a parameter has gaps in memory, or overlaps itself: {where}, strides={list(parameter.stride())}; "
            "give it memory of its own: parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)"
        )


def _buffers(model: nn.Module, tied: dict[str, str]) -> Iterator[tuple[str, Buffer]]:
    """Floating-point buffers of the state_dict."""
    first: dict[Any, str] = {}
    for prefix, module in model.named_modules():
        for key, tensor in module._buffers.items():
            if tensor is None or key in module._non_persistent_buffers_set or not tensor.is_floating_point():
                continue
            name = f"{prefix}.{key}" if prefix else key
            memory = (*memory_range(tensor), tensor.shape) if tensor.numel() else id(tensor)
            if memory in first:
                tied[name] = first[memory]
                continue
            if not is_dense(tensor):
                raise ConfigError(
                    f"a buffer has gaps in memory, or overlaps itself: buffer={name}, shape={list(tensor.shape)}, "
                    f"strides={list(tensor.stride())}; register it with .contiguous(), or with persistent=False if it need "
                    "not be saved"
                )
            first[memory] = name
            yield name, Buffer(module, key)


def _tie_frozen(model: nn.Module, exchanged: list[tuple[str, Tensor]], tied: dict[str, str]) -> None:
    """Note a frozen parameter that has the memory of an exchanged tensor as that tensor's second name."""
    first = {(*memory_range(tensor), tensor.shape): name for name, tensor in exchanged if tensor.numel()}
    names = {name for name, _ in exchanged}
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, Tensor) and name not in names and tensor.layout is torch.strided and tensor.numel():
            memory = (*memory_range(tensor), tensor.shape)
            if memory in first:
                tied.setdefault(name, first[memory])


def _one_device(named: list[tuple[str, Tensor]]) -> torch.device:
    name, tensor = named[0]
    for other, one in named:
        if one.device != tensor.device:
            raise ConfigError(
                f"the model lies on several devices: {name} on {tensor.device}, {other} on {one.device}; "
                "put it on one, mpca.device()"
            )
    return tensor.device
