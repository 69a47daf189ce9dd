"""The bytes of a file that lie in pieces, as blocks of one size: so a file of a whole model needs no copy of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["Piece", "blocks"]

#: Bytes, or a view of one dimension of them.
Piece = bytes | memoryview


def blocks(pieces: Iterable[Piece], size: int) -> Iterator[Piece | bytearray]:
    """Cut large pieces, without a copy, and join small ones.

    Args:
        pieces: one behind the other.
        size: bytes of each block, 1 or more; the last one may have fewer.

    Example:
        >>> [bytes(one) for one in blocks([b"abcd", b"", b"e", b"fg"], 3)]
        [b'abc', b'def', b'g']
    """
    joined = bytearray()
    for piece in pieces:
        rest = memoryview(piece)
        while len(rest):
            if not joined and len(rest) >= size:
                yield rest[:size]
                rest = rest[size:]
                continue
            taken = rest[: size - len(joined)]
            joined += taken
            rest = rest[len(taken) :]
            if len(joined) == size:
                yield joined
                joined = bytearray()
    if joined:
        yield joined
