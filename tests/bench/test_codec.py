"""What `mpca bench codec` makes of curves, and its rule."""

from __future__ import annotations

import pytest

from mpca.cli.bench.cases.codec import medians, smallest, updates_to
from mpca.sim.compare.fairness import Curve


def curve(*errors: float, every: float = 10.0) -> Curve:
    updates = [every * number for number in range(1, len(errors) + 1)]
    return Curve(updates, updates, list(range(len(errors))), errors)


@pytest.mark.parametrize(
    ("target", "updates"),
    [(0.9, 10.0), (0.8, 10.0), (0.5, 20.0), (0.4, 25.0), (0.3, 30.0), (0.1, 40.0)],
    ids=["before the first", "at the first", "at one", "half-way between two", "at the first of two", "not reached"],
)
def test_a_target_between_two_evaluations_is_reached_along_a_line(target: float, updates: float) -> None:
    assert updates_to(curve(0.8, 0.5, 0.3, 0.3), target) == pytest.approx(updates)


def test_a_rise_and_a_second_fall_change_nothing() -> None:
    assert updates_to(curve(0.8, 0.4, 0.6, 0.2), 0.4) == 20.0


def test_ratios_are_those_of_pairs_and_not_of_medians() -> None:
    without = [curve(0.9, 0.5), curve(0.9, 0.8, 0.7, 0.5), curve(0.9, 0.9, 0.5)]  # 20, 40 and 30 updates to 0.5
    coded = [curve(0.9, 0.8, 0.5), curve(0.9, 0.9, 0.9, 0.5), curve(0.9, 0.5)]  # 30, 40 and 20
    assert medians(coded, without, [0.5]) == [1.0]
    assert medians(coded[:1], without[:1], [0.9, 0.5]) == [1.0, 1.5]


def test_a_codec_with_which_a_target_is_not_reached_costs_what_is_left_of_its_time() -> None:
    assert medians([curve(0.9, 0.8, 0.7, 0.6)], [curve(0.9, 0.5, 0.4, 0.3)], [0.5]) == [2.0]


@pytest.mark.parametrize(
    ("bf16", "int8", "int4", "default"),
    [
        (1.0, 1.0, 1.02, "int4"),
        (1.0, 1.02, 1.03, "int8"),
        (1.0, 1.03, 1.03, "bf16"),
        (1.1, 1.0, 1.03, "int8"),
        (1.1, 1.1, 1.1, "none"),
    ],
)
def test_the_smallest_codec_is_one_that_costs_two_per_cent_at_most(bf16: float, int8: float, int4: float, default: str) -> None:
    assert smallest({"bf16": bf16, "int8": int8, "int4": int4, "control": 2.0}) == default
