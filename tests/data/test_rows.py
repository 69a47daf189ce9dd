"""Rows of a table as records: what is refused, and where it is; which go into which split, whatever their order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpca.data.decode import decode
from mpca.data.ingest import Options
from mpca.data.ingest_rows import Plan, make_plan
from mpca.data.rows import Form, Packed, Survey, pack_rows, survey
from mpca.errors import ConfigError

ARRAYS = Form("features", "label", "array", "float32")
GOOD = [([1.0, 2.0], number % 2) for number in range(6)]


def planned(
    rows: list, parts: int = 3, classes: int | None = None, form: Form = ARRAYS, **options: Any
) -> tuple[Plan, list[Packed]]:
    """As two jobs would: packed and surveyed by partitions, and the surveys added up."""
    chosen = Options(**options)
    told, packed = Survey(chosen.withheld), []
    for part in range(parts):
        mine = list(pack_rows(form, part, rows[part * len(rows) // parts : (part + 1) * len(rows) // parts], chosen.seed))
        told = told.plus(survey(form, mine, chosen.withheld))
        packed += mine
    return make_plan(form, told, "/set/{digest}", chosen, classes), packed


@pytest.mark.parametrize(
    ("rows", "options", "says"),
    [
        (
            [(None, 1), *GOOD],
            {},
            r"^column 'features' is null: 1 row, first partition 0, row 0; leave .*na.drop\(subset",
        ),
        ([*GOOD, ([1.0, 2.0], None)], {}, r"^column 'label' is null: 1 row, first partition 2, row 2; leave such"),
        (
            [*GOOD, ([1.0], 1)],
            {},
            r"is ragged: 1 row of another shape than \(2,\), such as \(1,\) in partition 2, row 2",
        ),
        ([*GOOD, ([[1.0], 2.0], 1)], {}, r"column 'features' is ragged inside, or holds null: 1 row, first partition 2, row 2"),
        (
            [*GOOD, ([1.0, None], 1)],
            {},
            r"holds null, NaN or infinite numbers: 1 row, first partition 2, row 2; fill",
        ),
        ([*GOOD, ([1.0, 1e300], 1)], {}, "holds null, NaN or infinite numbers"),
        ([*GOOD, ([], 1)], {}, "column 'features' is empty: 1 row"),
        ([*GOOD, ([1.0, 2.0], -1)], {}, r"label out of range: column 'label' is below 0: 1 row, first partition 2, row 2: -1;"),
        (
            GOOD,
            {"classes": 1},
            r"label out of range: column 'label': 3 rows of 1 or above, such as 1 in partition 0, row 1",
        ),
        (GOOD, {"classes": 3}, r"classes without a row: column 'label' has 2 of 3 labels, none is \[2\]; .*cast\('string'\)"),
        ([*GOOD, ([1.0, 2.0], 1.5)], {}, r"column 'label' is not a whole number: 1 row, first partition 2, row 2: 1.5; labels"),
        ([*GOOD, ([1.0, 2.0], float("nan"))], {}, r"column 'label' is not a whole number: 1 row, .*: nan; labels"),
        ([([1.0], "")], {}, "column 'label' is an empty text"),
        ([([1.0], "a")], {"classes": 2}, "column 'label' has 1 different texts, classes=2"),
        (GOOD, {"withheld": 3}, "nothing is left to train on: class 0 has 3 records, withheld=3"),
        ([], {}, "the DataFrame has no rows to train on"),
    ],
)
def test_rows_that_cannot_be_trained_on_are_refused_and_say_where_they_are(rows: list, options: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        planned(rows, **options)


def test_the_order_of_rows_changes_nothing_and_the_seed_does() -> None:
    rows = [([float(number)], f"class{number % 4}") for number in range(400)]
    options: dict[str, Any] = {"withheld": 30, "shard_bytes": 100_000}
    plan, packed = planned(rows, **options)
    shards = {one.data: plan.shard_of(one) for one in packed}
    other, again = planned(rows[::-1], parts=7, **options)
    assert other == plan
    assert {one.data: other.shard_of(one) for one in again} == shards
    # 400 records of 132 bytes and their headers, a tenth of room: nine shards, and three
    assert plan.shards == {"train": 7, "validation": 3}
    assert set(shards.values()) == set(range(10)), "all are filled"
    withheld = [one.label for one in packed if shards[one.data] >= 7]
    assert {label: withheld.count(label) for label in withheld} == {f"class{label}": 30 for label in range(4)}
    third, packed = planned(rows, seed=1, **options)
    assert third.digest != plan.digest
    assert {one.data: third.shard_of(one) for one in packed} != shards


def by_split(plan: Plan, packed: list[Packed]) -> dict[bytes, str]:
    return {one.data: plan.shard_names()[plan.shard_of(one)].partition("-")[0] for one in packed}


def test_a_column_names_the_rows_to_evaluate_on() -> None:
    form = replace(ARRAYS, validation="held")
    rows = [([float(number)], number % 2, number % 5 == 0) for number in range(40)]
    plan, packed = planned(rows, form=form)
    assert Counter(by_split(plan, packed).values()) == {"train": 32, "validation": 8}
    assert all(
        one.withheld == (split == "validation") for one, split in zip(packed, by_split(plan, packed).values(), strict=True)
    )
    other, _ = planned([(*row[:2], not row[2]) for row in rows], form=form)
    assert other.digest != plan.digest
    assert plan.target == f"/set/{plan.digest[:16]}"


def test_a_share_of_the_rows_is_put_aside_whatever_their_order() -> None:
    form = replace(ARRAYS, validation=0.25)
    rows = [([float(number)], number % 2) for number in range(1000)]
    plan, packed = planned(rows, form=form)
    found = by_split(plan, packed)
    assert Counter(found.values())["validation"] == pytest.approx(250, abs=50)
    other, again = planned(rows[::-1], parts=7, form=form)
    assert (other, by_split(other, again)) == (plan, found)
    assert planned(rows, form=replace(form, validation=0.3))[0].digest != plan.digest


@pytest.mark.parametrize(
    ("validation", "rows", "says"),
    [
        ("held", [([1.0], 0, True), ([2.0], 0, None)], r"^column 'held' is null: 1 row, first .*, or 0 where it has numbers$"),
        ("held", [([1.0], 0, False)], "^nothing is put aside to evaluate on: column 'held', 1 row; put more aside"),
        ("held", [([1.0], 0, False), ([1.0], 1, 1)], "left to train on: class 1 has 1 row, and column 'held' puts all of them"),
        (0.01, [([1.0], 0)], "^nothing is put aside to evaluate on: validation=0.01, 1 row; put more aside"),
    ],
)
def test_rows_to_evaluate_on_that_leave_too_little_are_refused(validation: Any, rows: list, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        planned(rows, parts=2, form=replace(ARRAYS, validation=validation))


def test_whole_numbers_in_a_column_of_reals_are_labels() -> None:
    assert planned([([1.0], 0.0), ([2.0], 1.0)])[0].numbers == {0: 0, 1: 1}, "as StringIndexer gives them"


@pytest.mark.parametrize(("mode", "channels"), [(0, 1), (16, 3), (24, 4)])
def test_pixels_of_sparks_image_struct_become_a_jpeg(mode: int, channels: int) -> None:
    pixels = np.zeros((8, 12, channels), np.uint8)
    pixels[..., 0] = 200  # blue, or grey
    pixels[..., 3:] = 255
    image = SimpleNamespace(origin="file:/a.png", height=8, width=12, nChannels=channels, mode=mode, data=pixels.tobytes())
    (one,) = pack_rows(Form("image", "label", "image"), 0, [(image, 0)], 0)
    assert isinstance(one, Packed)
    assert one.row == "partition 0, row 0: file:/a.png"
    expected = [200, 200, 200] if channels == 1 else [0, 0, 200]
    assert decode(one.data, 8).reshape(-1, 3).mean(axis=0) == pytest.approx(expected, abs=2)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"mode": -1}, "not 8 bits a channel, or not read by Spark: mode=-1"),
        ({"height": 9}, "pixels of another size: height=9, width=12, nChannels=1, bytes=96"),
    ],
)
def test_an_image_struct_that_is_none_is_a_bad_record(changes: dict, says: str) -> None:
    fields = {"origin": "", "height": 8, "width": 12, "nChannels": 1, "mode": 0, "data": bytes(96), **changes}
    (one,) = pack_rows(Form("image", "label", "image"), 0, [(SimpleNamespace(**fields), 0)], 0)
    assert isinstance(one, Packed)
    assert one.reason == says
