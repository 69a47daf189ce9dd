"""Tensors of a model's `state_dict` that are not in the flat vector: frozen parameters (an EMA teacher), integer buffers.

Each agent has its own; they are never averaged. When a model is saved, one agent's are read, so that saved models have present
values. They are shards after the model's own, and their bytes are words of 16 bits (`storage.words`). An agent that replaces
its model by the joint model replaces these too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from mpca.errors import ConfigError
from mpca.storage.tensors import DTYPES
from mpca.storage.words import from_words, to_words, word_count

__all__ = ["LOCAL_LIMIT_BYTES", "LocalTensors"]

_log = logging.getLogger("mpca.agent")

#: Limit for all local tensors together. A larger frozen backbone stays out of saved models, and takes no memory for them.
LOCAL_LIMIT_BYTES = 512 << 20
#: A local shard is at most as large as the model's largest shard, but not smaller than this (elements of 4 bytes).
_LEAST_PIECE = 4 << 20

_Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Local:
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    length: int  # bytes
    start: int  # number of words before it


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class LocalTensors:
    """The local tensors of one model. Each use looks them up by name, since a module may assign new ones."""

    def __init__(self, model: nn.Module, exchanged: set[str]) -> None:
        """`exchanged` has the names of all tensors in the flat vector, including second names."""
        self._model = model
        self._tensors: list[_Local] = []
        self.words = 0
        left = LOCAL_LIMIT_BYTES
        for name, value in model.state_dict().items():
            if name in exchanged or not isinstance(value, Tensor):
                continue
            length, dtype = value.numel() * value.element_size(), _name(value.dtype)
            if length > left or dtype not in DTYPES or value.layout is not torch.strided:
                _log.warning(
                    "left out of saved models: tensor=%s, dtype=%s, bytes=%d, limit_bytes=%d",
                    name,
                    dtype,
                    length,
                    LOCAL_LIMIT_BYTES,
                )
                continue
            left -= length
            self._tensors.append(_Local(name, value.dtype, tuple(value.shape), length, self.words))
            self.words += word_count(length)

    def rows(self) -> dict[str, list[Any]]:
        """Rows for Hello."""
        return {one.name: [_name(one.dtype), list(one.shape), one.length] for one in self._tensors}

    def edges(self, after: int, largest: int) -> list[int]:
        """The ends of the local shards, in elements.

        Args:
            after: elements of the model before them.
            largest: elements of the model's largest shard.
        """
        piece = max(largest, _LEAST_PIECE)
        return [after + min(end, self.words) for end in range(piece, self.words + piece, piece)] if self.words else []

    @torch.no_grad()
    def read(self, start: int, out: _Array) -> None:
        """Copy the tensors' present words, from `start` on, to `out`."""
        for tensor, first, last, at in self._parts(start, start + out.size):
            # The part's bytes, in row order. On a GPU this waits for all work that was queued before.
            raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            to_words(raw[first:last], out[at : at + word_count(last - first)])

    @torch.no_grad()
    def write(self, start: int, words: _Array) -> None:
        """Set the tensors' words from `start` on. The other words of a tensor that is cut keep their values."""
        for tensor, first, last, at in self._parts(start, start + words.size):
            rows = tensor.detach().cpu().contiguous().reshape(-1).clone()
            part = bytearray(from_words(words[at : at + word_count(last - first)], last - first))
            rows.view(torch.uint8)[first:last] = torch.frombuffer(part, dtype=torch.uint8)
            tensor.detach().copy_(rows.reshape(tensor.shape))

    def _parts(self, start: int, end: int) -> Iterator[tuple[Tensor, int, int, int]]:
        """Each tensor in a range of words: its first and last byte there, and their offset in the range."""
        state = self._model.state_dict()
        for one in self._tensors:
            low, high = max(start, one.start), min(end, one.start + word_count(one.length))
            if low >= high:
                continue
            tensor = state.get(one.name)
            if not isinstance(tensor, Tensor) or (tensor.dtype, tuple(tensor.shape)) != (one.dtype, one.shape):
                now = "nothing" if not isinstance(tensor, Tensor) else f"{tensor.dtype} {list(tensor.shape)}"
                raise ConfigError(
                    f"the model changed after attach: tensor={one.name} was {one.dtype} {list(one.shape)} and is {now}; "
                    "make, freeze and prune layers before mpca.attach(model, optimizer)"
                )
            yield tensor, 2 * (low - one.start), min(2 * (high - one.start), one.length), low - start
