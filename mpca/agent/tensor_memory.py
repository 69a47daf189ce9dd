"""Memory of tensors: the order of their elements, and overlaps. Reads addresses, no values.

An exchanged tensor must be *dense*: its elements fill one range of memory, each once. Their order may be that of any
permutation of the dimensions (channels_last is one), as long as all agents have the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from mpca.errors import ConfigError

__all__ = ["MemoryRange", "check_overlaps", "flat_view", "is_dense", "memory_order", "memory_range"]

#: First byte, byte after the last, strides and element type. Two tensors with equal memory ranges are one tensor.
MemoryRange = tuple[int, int, tuple[int, ...], torch.dtype]


def memory_order(tensor: Tensor) -> tuple[int, ...]:
    """Dimensions from the slowest in memory to the fastest; ``(0, 1, ...)`` for a contiguous tensor."""
    if tensor.is_contiguous():
        return tuple(range(tensor.dim()))
    # The stride of a dimension with one element means nothing, so such a dimension comes last.
    strides = tensor.stride()
    return tuple(sorted(range(tensor.dim()), key=lambda d: (-strides[d] * max(tensor.shape[d] > 1, 0), d)))


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill one range of memory, each once, in the order of some permutation."""
    return tensor.permute(memory_order(tensor)).is_contiguous()


def flat_view(tensor: Tensor) -> Tensor:
    """A dense tensor's elements in their order in memory, as a one-dimensional view of the same memory."""
    return tensor.detach().permute(memory_order(tensor)).view(-1)


def memory_range(tensor: Tensor) -> MemoryRange:
    """The range of memory of a tensor."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    strides = tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)
    return start, start + (last + 1) * tensor.element_size(), strides, tensor.dtype


def check_overlaps(named: Iterable[tuple[str, Tensor]]) -> None:
    """Refuse tensors that share only a part of their memory: it would be exchanged and pulled twice.

    Raises:
        ConfigError: two tensors overlap; names both.
    """
    reach, holder = 0, ""
    for (start, end, _, _), name, tensor in sorted(
        ((memory_range(one), name, one) for name, one in named if one.numel()), key=lambda entry: (entry[0][:2], entry[1])
    ):
        if start < reach:
            raise ConfigError(
                f"two tensors overlap in memory: {holder} and {name}, shape={list(tensor.shape)}; the shared part would be "
                "exchanged twice: give one of them memory of its own (.clone()), or take the part in forward"
            )
        if end > reach:
            reach, holder = end, name
