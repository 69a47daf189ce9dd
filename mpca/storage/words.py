"""Bytes of any kind as float32 numbers, 16 bits per element, which a weighted sum with weight 1 returns exactly.

The exchange moves float32 vectors and adds them. Integers below 2^16 pass it unchanged, and are finite. Bit patterns of other
types would change: a sum turns -0.0 into 0.0, and may change a NaN.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["from_words", "to_words", "word_count"]

_WORD = np.dtype("<u2")


def word_count(length: int) -> int:
    """Number of elements for `length` bytes."""
    return -(-length // _WORD.itemsize)


def to_words(data: bytes | memoryview | npt.NDArray[np.uint8], out: npt.NDArray[np.float32]) -> None:
    """Write `data` to `out`, ``float32[word_count(len(data))]``.

    Example:
        >>> out = np.empty(2, np.float32)
        >>> to_words(bytes([1, 2, 255]), out)
        >>> out.tolist()
        [513.0, 255.0]
    """
    raw = np.frombuffer(data, np.uint8)
    even = raw.size // _WORD.itemsize
    out[:even] = raw[: even * _WORD.itemsize].view(_WORD)
    if raw.size % _WORD.itemsize:
        out[even] = raw[-1]


def from_words(words: npt.NDArray[np.float32], length: int) -> bytes:
    """The first `length` bytes of the words; the reverse of `to_words`.

    Raises:
        ValueError: an element is not an integer of 16 bits, or the numbers of elements and bytes differ.
    """
    kept = words.astype(_WORD)
    if words.size != word_count(length) or not np.array_equal(kept, words):
        raise ValueError(f"not words of 16 bits: elements={words.size}, bytes={length}")
    return kept.tobytes()[:length]
