"""Bytes of any kind as float32 numbers that a weighted sum with weight 1 returns exactly: 16 bits an element.

The exchange moves float32 vectors and adds them. Integers below 2^16 pass it unchanged, which bit patterns of other types
do not (a sum makes -0.0 to 0.0 and may change a NaN), and they are finite, whatever the bytes mean.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["from_words", "to_words", "word_count"]

_WORD = np.dtype("<u2")


def word_count(length: int) -> int:
    """Elements that so many bytes take."""
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
    """The bytes again. Raises ValueError when an element is not an integer of 16 bits."""
    kept = words.astype(_WORD)
    if words.size != word_count(length) or not np.array_equal(kept, words):
        raise ValueError(f"not words of 16 bits: elements={words.size}, bytes={length}")
    return kept.tobytes()[:length]
