r"""Codecs for what travels in place of float32: differences from a state that sender and receiver both hold (the base).

A codec writes float32 values in fewer bytes and reads them back rounded. It is a pure function of its input, with one
arithmetic that Java and numpy share to the bit (``org.mpca.reduce.Codec``, ``tests/golden/wire/codecs.json``):

========  ==================  =================================================================
codec     bytes               an element
========  ==================  =================================================================
bf16      2 n                 the upper half of its float32, rounded half to even
int8      n + 4 ceil(n/256)   code in -127..127 times the scale of its block
int4      ceil(n/2) + as int8 code in -7..7 times the scale of its block
========  ==================  =================================================================

*What is encoded* is a chunk: some parameters, then perhaps buffers. Buffers (BatchNorm statistics) are never rounded; they
follow as float32. All numbers are little-endian::

    bf16   u16 x n                                             | float32 x buffers
    int8   float32 scale x blocks | int8 code x n              | float32 x buffers
    int4   float32 scale x blocks | two codes a byte, ceil(n/2) | float32 x buffers

A block is 256 parameters, the last one what is left; blocks begin anew at the edges of chunks, so a chunk is encoded and
summed without its neighbours. The first of two int4 codes lies in the lower four bits, in two's complement; after an odd n the
upper four are 0.

*The scale* of a block is its largest magnitude over 127 (7), rounded up to 17 significant bits. So a code times its scale is
exact, and what was decoded once is encoded without another loss. A code is ``rint(float64(x) / float64(scale))``, half to even.

*Edge cases.* What is finite stays finite: bf16 rounds no further than to its largest number, and a scale at the end of the
range is rounded down. A block of zeros has scale 0; so has one whose scale would be below the normal numbers (magnitudes under
1.5e-36, for int4 8.3e-38), which decodes to zeros. bf16 keeps denormals, and -0.0; int8 and int4 give 0.0 for it. NaN and
infinity are refused: their sender keeps them out of a sum as it does without a codec.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["BLOCK", "Codec", "Floats"]

Floats = npt.NDArray[np.float32]

#: Parameters that share a scale.
BLOCK = 256

_SMALLEST_NORMAL = np.float32(2.0**-126)
_SHORT = np.uint32(0x7F)  # bits of a float32 that a scale does not have: 24 - 7 = 17 are left


class Codec(Enum):
    """How a chunk is written; see the module's text. The values are those of the key `cluster.codec`."""

    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def of_sums(self) -> Codec:
        """The codec of a sum on its way to the driver: never coarser than its parts.

        Sums of int8 were bf16 once. That took a sixth longer at K = 8, and learnt nothing sooner (docs/compare.md).
        """
        return Codec.BF16 if self is Codec.BF16 else Codec.INT8

    def size(self, elements: int, parameters: int) -> int:
        """Bytes of an encoded chunk.

        Args:
            elements: of the chunk.
            parameters: how many of them, from the first on, are parameters; the others are buffers.
        """
        _check_split(elements, parameters)
        buffers, blocks = 4 * (elements - parameters), 4 * -(-parameters // BLOCK)
        match self:
            case Codec.BF16:
                return 2 * parameters + buffers
            case Codec.INT8:
                return blocks + parameters + buffers
            case Codec.INT4:
                return blocks + (parameters + 1) // 2 + buffers

    def encode(self, values: Floats, parameters: int) -> bytes:
        """Write a chunk.

        Args:
            values: float32[n].
            parameters: as in `size`.

        Returns:
            `size(n, parameters)` bytes.

        Raises:
            ValueError: a parameter is not finite, or `values` is not a float32 vector.

        Example:
            >>> Codec.INT8.encode(np.float32([127, -64.5]), 2).hex()  # a scale of 1; -64.5 goes to the even one
            '0000803f7fc0'
        """
        if values.ndim != 1 or values.dtype != np.float32:
            raise ValueError(f"not a float32 vector: {values.dtype}{values.shape}")
        _check_split(values.size, parameters)
        rounded, exact = values[:parameters], values[parameters:].astype("<f4").tobytes()
        if not np.isfinite(rounded).all():
            raise ValueError(f"not finite: {np.count_nonzero(~np.isfinite(rounded))} of {parameters} parameters")
        if self is Codec.BF16:
            return _to_bf16(rounded).tobytes() + exact
        scales, codes = _quantised(rounded, self._most)
        if self is Codec.INT4:
            codes = np.append(codes, np.int8(0)) if codes.size % 2 else codes
            nibbles = codes.view(np.uint8) & 15
            packed = (nibbles[::2] | nibbles[1::2] << 4).tobytes()
        else:
            packed = codes.tobytes()
        return scales.astype("<f4").tobytes() + packed + exact

    def decode(self, data: bytes, elements: int, parameters: int) -> Floats:
        """Read a chunk.

        Args:
            data: what `encode` wrote.
            elements: of the chunk.
            parameters: as in `size`.

        Returns:
            float32[elements], a new array.

        Raises:
            ValueError: `data` is of another length.

        Example:
            >>> Codec.BF16.decode(bytes.fromhex("803f"), 1, 1)
            array([1.], dtype=float32)
        """
        if len(data) != self.size(elements, parameters):
            raise ValueError(f"not a chunk of {elements} elements, {self.value}: bytes={len(data)}")
        out = np.empty(elements, np.float32)
        out[parameters:] = np.frombuffer(data, "<f4", elements - parameters, len(data) - 4 * (elements - parameters))
        if self is Codec.BF16:
            out[:parameters] = (np.frombuffer(data, "<u2", parameters).astype(np.uint32) << 16).view(np.float32)
            return out
        blocks = -(-parameters // BLOCK)
        scales = np.frombuffer(data, "<f4", blocks)
        if self is Codec.INT4:
            packed = np.frombuffer(data, np.uint8, (parameters + 1) // 2, 4 * blocks)
            nibbles = np.stack((packed & 15, packed >> 4), axis=1).reshape(-1)[:parameters]
            codes = (nibbles ^ 8).astype(np.int8) - np.int8(8)
        else:
            codes = np.frombuffer(data, np.int8, parameters, 4 * blocks)
        np.multiply(codes, np.repeat(scales, BLOCK)[:parameters], out=out[:parameters], dtype=np.float32)
        return out

    def encode_chunks(self, values: Floats, edges: Sequence[int], parameters: int) -> list[bytes]:
        """Write a shard chunk by chunk.

        Args:
            values: float32[n], the shard: its parameters, then its buffers.
            edges: of its chunks in elements, from 0 to n.
            parameters: of the shard.

        Raises:
            ValueError: as `encode`.
        """
        return [self.encode(values[a:b], _share(parameters, a, b)) for a, b in pairwise(edges)]

    def decode_chunks(self, chunks: Sequence[bytes], edges: Sequence[int], parameters: int) -> Floats:
        """Read a shard that `encode_chunks` wrote, with the same edges.

        Returns:
            float32[n], a new array.

        Raises:
            ValueError: as `decode`, or another number of chunks.
        """
        out = np.empty(edges[-1], np.float32)
        for data, (a, b) in zip(chunks, pairwise(edges), strict=True):
            out[a:b] = self.decode(data, b - a, _share(parameters, a, b))
        return out

    def rounded(self, values: Floats, edges: Sequence[int], parameters: int) -> Floats:
        """A shard as its receivers see it: written and read."""
        return self.decode_chunks(self.encode_chunks(values, edges, parameters), edges, parameters)

    @property
    def _most(self) -> int:
        """The largest code."""
        return 7 if self is Codec.INT4 else 127


def _share(parameters: int, a: int, b: int) -> int:
    """Parameters among the elements a..b of a shard."""
    return max(0, min(parameters, b) - a)


def _check_split(elements: int, parameters: int) -> None:
    if not 0 <= parameters <= elements:
        raise ValueError(f"parameters must lie in 0..n: parameters={parameters}, n={elements}")


def _to_bf16(values: Floats) -> npt.NDArray[np.uint16]:
    bits = np.ascontiguousarray(values).view(np.uint32)
    upper = (bits + (np.uint32(0x7FFF) + (bits >> 16 & 1))) >> 16
    infinite = upper & 0x7FFF == 0x7F80
    halves: npt.NDArray[np.uint16] = (upper - infinite).astype("<u2")  # the number before infinity is the largest one
    return halves


def _quantised(values: Floats, most: int) -> tuple[Floats, npt.NDArray[np.int8]]:
    """Scales, one a block, and codes in -most..most, one an element."""
    blocks = -(-values.size // BLOCK)
    padded = np.zeros(blocks * BLOCK, np.float32)
    padded[: values.size] = values
    rows = padded.reshape(blocks, BLOCK)
    scales = np.abs(rows).max(axis=1) / np.float32(most)
    scales = ((scales.view(np.uint32) + _SHORT) & ~_SHORT).view(np.float32)
    with np.errstate(over="ignore"):
        beyond = np.isinf(scales * np.float32(most))
    scales = (scales.view(np.uint32) - beyond * (_SHORT + np.uint32(1))).astype(np.uint32).view(np.float32)
    scales[scales < _SMALLEST_NORMAL] = 0
    divisors = np.where(scales > 0, scales, np.inf).astype(np.float64)[:, None]
    codes = np.rint(rows.astype(np.float64) / divisors).astype(np.int8)
    return scales, codes.reshape(-1)[: values.size]
