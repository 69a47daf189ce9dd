"""Where tensors lie in memory: in which order their elements do, and which of them overlap. Reads addresses, no values.

An exchanged tensor must be *dense*: its elements fill one range of memory, each once. Its order in that range may be that
of any permutation of its dimensions (channels_last is one): what travels only needs an order that all agents have.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from mpca.errors import ConfigError

__all__ = ["MemoryRange", "check_overlaps", "flat_view", "is_dense", "memory_order", "memory_range"]

#: First byte, byte after the last, strides and element type: two tensors with the same one are one tensor.
MemoryRange = tuple[int, int, tuple[int, ...], torch.dtype]


def memory_order(tensor: Tensor) -> tuple[int, ...]:
    """Dimensions from the slowest in memory to the fastest; ``(0, 1, ...)`` for a contiguous tensor."""
    if tensor.is_contiguous():
        return tuple(range(tensor.dim()))
    # Of a dimension with one element the stride says nothing: it comes last.
    strides = tensor.stride()
    return tuple(sorted(range(tensor.dim()), key=lambda d: (-strides[d] * max(tensor.shape[d] > 1, 0), d)))


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill one range of memory, each once, in the order of some permutation."""
    return tensor.permute(memory_order(tensor)).is_contiguous()


def flat_view(tensor: Tensor) -> Tensor:
    """A dense tensor's elements in the order in which they lie in memory: one dimension, the same memory."""
    return tensor.detach().permute(memory_order(tensor)).view(-1)


def memory_range(tensor: Tensor) -> MemoryRange:
    """The range of memory that a tensor looks at."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    strides = tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)
    return start, start + (last + 1) * tensor.element_size(), strides, tensor.dtype


def check_overlaps(named: Iterable[tuple[str, Tensor]]) -> None:
    """Refuse tensors of which a part lies in another one: it would be exchanged, and pulled, twice.

    Raises:
        ConfigError: names both.
    """
    reach, holder = 0, ""
    for (start, end, _, _), name, tensor in sorted(
        ((memory_range(one), name, one) for name, one in named if one.numel()), key=lambda entry: (entry[0][:2], entry[1])
    ):
        if start < reach:
            raise ConfigError(
                f"two tensors overlap in memory: {holder} and {name}, shape={list(tensor.shape)}; what they share would be "
                "exchanged twice: give one of them memory of its own (.clone()), or take the part in forward"
            )
        if end > reach:
            reach, holder = end, name
