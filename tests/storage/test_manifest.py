"""What a backup's manifest must say of shards: at least one, from the first element to the last."""

from __future__ import annotations

from typing import Any

import pytest

from mpca.storage import ModelLayout
from mpca.storage.manifest import MODEL, TRAJECTORY, make, parse

#: A model whose one tensor has no element: no edge is wrong by where it lies.
EMPTY = ModelLayout.of([["none", [0], "buffer", 0]], parameters=0)
FILES = {name: {"bytes": 8, "sha256": "0" * 64} for name in (MODEL, TRAJECTORY)}


def values(bounds: list[int], exchanges: list[int]) -> dict[str, Any]:
    maps: dict[str, Any] = {key: {} for key in ("method", "data", "seeds", "software", "progress")}
    return {"bounds": bounds, "exchanges": exchanges, "run": "digits", "term": 1, "cycle": 4, **maps}


def test_shards_of_no_element_are_shards() -> None:
    assert parse(make(values([0, 0, 0], [2, 1]), EMPTY, FILES))["bounds"] == [0, 0, 0]


@pytest.mark.parametrize(
    ("bounds", "exchanges", "what"),
    [
        ([0], [], "bounds"),
        ([], [], "bounds"),
        ([0, 1], [3], "bounds"),
        ([0, 0], [], "exchanges"),
        ([0, 0], [1, 1], "exchanges"),
    ],
)
def test_no_shard_or_one_too_few_or_beyond_the_end_is_refused(bounds: list[int], exchanges: list[int], what: str) -> None:
    with pytest.raises(ValueError, match=rf"^manifest\.json: {what} cannot be"):
        make(values(bounds, exchanges), EMPTY, FILES)
