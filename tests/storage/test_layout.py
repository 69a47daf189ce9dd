"""Tensors that lie otherwise than in rows: a state_dict has them as torch has them, and the way back is exact."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from mpca.storage import ModelLayout, model_file
from mpca.storage.tensors import dump, parse

ROWS = [
    ["conv", [2, 3, 2, 2], "parameter", 0, [0, 2, 3, 1]],
    ["bias", [2], "parameter", 24],
    ["mean", [2, 3], "buffer", 26, [1, 0]],
]


def test_order_in_memory_is_undone_in_a_state_dict_and_in_files() -> None:
    layout = ModelLayout.of(ROWS, 26)
    flat = np.arange(32, dtype=np.float32)
    conv = np.empty((2, 3, 2, 2), np.float32)
    for at, (o, h, w, i) in enumerate(np.ndindex(2, 2, 2, 3)):  # the order of the memory: i is the fastest
        conv[o, i, h, w] = at
    mean = np.float32([[26, 28, 30], [27, 29, 31]])
    state = layout.state_dict(flat)
    np.testing.assert_array_equal(state["conv"], conv)
    np.testing.assert_array_equal(state["mean"], mean)
    tensors = parse(model_file(layout, flat))
    assert bytes(tensors["conv"].data) == conv.tobytes()
    assert bytes(tensors["mean"].data) == mean.tobytes()
    np.testing.assert_array_equal(layout.flat(tensors), flat)
    again = ModelLayout.from_json(layout.to_json(), tensors)
    assert (again, again.digest) == (layout, layout.digest)


def test_the_same_tensors_in_another_order_take_each_others_tensors() -> None:
    layout, plain = ModelLayout.of(ROWS, 26), ModelLayout.of([row[:4] for row in ROWS], 26)
    assert layout.digest == plain.digest
    flat = np.random.default_rng(1).standard_normal(32, np.float32)
    moved = plain.flat(layout.model_tensors(flat))
    assert not np.array_equal(moved, flat)
    for name, tensor in plain.state_dict(moved).items():
        np.testing.assert_array_equal(tensor, layout.state_dict(flat)[name])


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 2, 2], [0, 1, 2, 4]])
def test_what_is_no_permutation_is_no_layout(order: list[int]) -> None:
    with pytest.raises(ValueError, match=r"not a layout: tensor=w.*order="):
        ModelLayout.of([["w", [1, 2, 3, 4], "parameter", 0, order]], 24)


@pytest.mark.parametrize("edges", [(0, 32), (0, 24, 32), (0, 5, 25, 29, 32), (0, 0, 11, 11, 32)])
def test_a_vector_in_pieces_gives_the_tensors_of_the_whole(edges: tuple[int, ...]) -> None:
    layout = ModelLayout.of([*ROWS[:2], ["none", [0, 3], "parameter", 26], ROWS[2]], 26)
    flat = np.arange(32, dtype=np.float32)
    flats = [flat[a:b] for a, b in pairwise(edges)]
    assert dump(layout.model_tensors(*flats)) == dump(layout.model_tensors(flat))
    assert (np.frombuffer(layout.model_tensors(*flats)["bias"].data, np.float32) == flat[24:26]).all()
    with pytest.raises(ValueError, match="not of this model"):
        layout.model_tensors(*flats, flat[:1])
