"""Arithmetic of the benches that need a cluster, on numbers given."""

from __future__ import annotations

import pytest

from mpca.cli.bench.cases.backup import cycles_a_second
from mpca.cli.bench.cases.submit import figures
from mpca.errors import MpcaError


def test_stages_are_differences_and_the_ratio_is_of_medians() -> None:
    runs = [{"submit": 1.0, "executors": first - 2, "first_step": first} for first in (9.0, 12.0, 30.0)]
    result = figures(runs, [8.0, 6.0, 7.0])
    assert result["submit_ratio"] == pytest.approx(12 / 7)
    assert result["stages_s"] == {"submit": 1.0, "executors": 9.0, "first_step": 2.0}
    assert result["each_first_step_s"] == [9.0, 12.0, 30.0]


def test_a_cycle_that_was_held_up_at_the_begin_of_a_window_counts_in_it() -> None:
    ends = [0.0, 1.0, 2.0, 5.0, 6.0, 7.0]  # the third cycle took three times as long: the window began in it
    assert cycles_a_second(ends, [(2.1, 6.5)]) == pytest.approx(2 / 4)
    assert cycles_a_second(ends, [(0.0, 2.5), (5.5, 7.0)]) == pytest.approx((2 + 2) / (2 + 2))


def test_a_window_without_a_cycle_is_an_error() -> None:
    with pytest.raises(MpcaError, match="no cycle lies in a window"):
        cycles_a_second([1.0, 2.0], [(2.1, 2.9)])
