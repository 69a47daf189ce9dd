"""Blocks of pieces: every byte once, in order, in blocks of one size; large pieces are not copied."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mpca.storage.blocks import blocks


@given(st.lists(st.binary(max_size=12)), st.integers(1, 9))
def test_every_byte_is_there_once_and_all_blocks_but_the_last_are_full(pieces: list[bytes], size: int) -> None:
    found = [bytes(one) for one in blocks(pieces, size)]
    assert b"".join(found) == b"".join(pieces)
    assert all(len(one) == size for one in found[:-1])
    assert all(0 < len(one) <= size for one in found[-1:])


def test_what_fills_blocks_is_cut_and_not_copied() -> None:
    piece = bytearray(8)
    first, second = blocks([memoryview(piece)], 4)
    piece[:] = b"abcdefgh"
    assert (bytes(first), bytes(second)) == (b"abcd", b"efgh")
