"""Bytes pass a weighted sum with weight 1 unchanged, whatever they mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpca.algorithm import weighted_sum
from mpca.storage import ModelLayout
from mpca.storage.words import from_words, to_words, word_count


@given(st.binary(max_size=41))
def test_bytes_come_through_a_sum(data: bytes) -> None:
    words = np.full(word_count(len(data)), np.nan, np.float32)
    to_words(data, words)
    assert np.isfinite(words).all()
    summed = weighted_sum([words], [1.0])
    assert summed is not None
    assert from_words(summed, len(data)) == data


@pytest.mark.parametrize(("words", "length"), [([0.5], 2), ([65536.0], 2), ([-1.0], 2), ([1.0, 2.0], 2), ([], 1)])
def test_other_numbers_are_no_words(words: list[float], length: int) -> None:
    with pytest.raises(ValueError, match="not words of 16 bits"):
        from_words(np.float32(words), length)


def test_a_layout_takes_local_tensors_and_gives_them() -> None:
    local = {"n": ["int64", [], 8], "mask": ["bool", [3], 3], "base": ["bfloat16", [2], 4]}
    layout = ModelLayout.of([["w", [2], "parameter", 0]], 2, local)
    assert layout.local_words == 4 + 2 + 2
    data = {"n": (-3).to_bytes(8, "little", signed=True), "mask": b"\x01\x00\x01", "base": b"\x80\x3f\xff\xff"}
    whole = np.concatenate([np.frombuffer(one + b"\0" * (len(one) % 2), "<u2") for one in data.values()]).astype(np.float32)
    known = layout.with_words(whole)
    state = known.state_dict(np.zeros(2, np.float32))
    assert (int(state["n"]), state["mask"].tolist()) == (-3, [True, False, True])
    assert {name: raw for name, (_, _, raw) in known.local.items()} == data
    np.testing.assert_array_equal(known.words(), whole)
    with pytest.raises(ValueError, match="not the local tensors of this model"):
        layout.with_words(whole[1:])
