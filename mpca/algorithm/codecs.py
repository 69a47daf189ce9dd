"""The seam for what a shard looks like on the wire. Identity alone for now: float32, little-endian.

A codec is told what the receiver already holds, since the later ones send deltas against it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Codec", "Identity"]

_WIRE = np.dtype("<f4")


class Codec(Protocol):
    """Turns one shard into bytes and back. Pure: the state it needs is what the receiver holds."""

    name: str

    def encode(self, vector: npt.NDArray[np.float32], held: npt.NDArray[np.float32] | None) -> bytes:
        """Bytes of float32[n] `vector` for a receiver that holds float32[n] `held` (None: nothing)."""
        ...

    def decode(self, data: bytes, held: npt.NDArray[np.float32] | None) -> npt.NDArray[np.float32]:
        """float32[n], a new array. Raises ValueError when `data` cannot be of this codec."""
        ...


class Identity:
    """The vector itself; what the receiver holds does not matter.

    Example:
        >>> Identity().decode(Identity().encode(np.float32([1.5, -2]), held=None), held=None)
        array([ 1.5, -2. ], dtype=float32)
    """

    name = "identity"

    def encode(self, vector: npt.NDArray[np.float32], held: npt.NDArray[np.float32] | None) -> bytes:
        return vector.astype(_WIRE, copy=False).tobytes()

    def decode(self, data: bytes, held: npt.NDArray[np.float32] | None) -> npt.NDArray[np.float32]:
        if len(data) % _WIRE.itemsize:
            raise ValueError(f"not a whole number of float32: bytes={len(data)}")
        return np.frombuffer(data, _WIRE).astype(np.float32)
