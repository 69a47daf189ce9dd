"""The rules, on numbers that a person can follow."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpca.sim.compare.fairness import MORE, Curve, Score, Trial, best, edges, extension, first_grid, refinement, score, targets


def run(*errors: float) -> Curve:
    times = [10.0 * number for number in range(len(errors))]
    return Curve(times, times, list(range(len(errors))), errors)


def trials(rates: dict[float, float], **knobs: object) -> dict[Trial, Score]:
    return {Trial(tuple(sorted(knobs.items())), rate): (0, value, 0.0) for rate, value in rates.items()}


def test_a_target_is_the_median_that_single_had_reached_rounded_up() -> None:
    curves = [run(0.9, 0.411, 0.2), run(0.9, 0.433, 0.3), run(0.9, 0.6, 0.1)]
    assert targets({0.1: curves}, 20, (0.5, 1.0)) == (0.435, 0.2)


def test_a_target_is_that_of_singles_best_rate_at_each_time() -> None:
    assert targets({0.1: [run(0.9, 0.3, 0.3)], 0.2: [run(0.9, 0.5, 0.1)]}, 20, (0.5, 1.0)) == (0.3, 0.1)


def test_a_rise_behind_the_least_error_does_not_count() -> None:
    assert targets({0.1: [run(0.9, 0.2, 0.4)]}, 20, (1.0,)) == (0.2,)


def test_equal_targets_are_one() -> None:
    assert targets({0.1: [run(0.9, 0.2, 0.2)]}, 20, (0.5, 1.0)) == (0.2,)


def test_a_run_that_misses_a_target_is_worse_than_a_slow_one() -> None:
    fast_once = [run(0.9, 0.1, 0.1), run(0.9, 0.9, 0.9)]
    slow = [run(0.9, 0.9, 0.1)] * 2
    assert score(slow, (0.1,)) < score(fast_once, (0.1,))


def test_times_are_compared_by_their_ratio_over_all_targets_and_runs() -> None:
    missed, mean, last = score([run(0.9, 0.5, 0.1), run(0.5, 0.5, 0.1)], (0.5, 0.1))
    assert missed == 0
    assert mean == pytest.approx((math.log(10) + math.log(20) + math.log(1e-9) + math.log(20)) / 4)
    assert last == pytest.approx(0.1)


def test_where_nothing_reaches_a_target_the_last_error_decides() -> None:
    assert score([run(0.9, 0.8)], (0.1,)) < score([run(0.9, 0.85)], (0.1,))


def test_fewer_settings_have_finer_rates_in_the_same_range() -> None:
    one, three = first_grid([{}], 0.001, 0.016, 15), first_grid([{"tau": tau} for tau in (5, 10, 20)], 0.001, 0.016, 15)
    assert len(one) == len(three) == 15
    assert [trial.rate for trial in three[:5]] == [0.001, 0.002, 0.004, 0.008, 0.016]
    assert (one[0].rate, one[-1].rate) == (0.001, 0.016)


def test_an_optimum_at_an_edge_is_tried_beyond_it() -> None:
    found = extension(trials({0.1: 3, 0.2: 2, 0.4: 1}))
    assert found is not None
    assert [one.rate for one in found] == [0.8, 1.6]
    found = extension(trials({0.1: 1, 0.2: 2, 0.4: 3}))
    assert found is not None
    assert [one.rate for one in found] == [0.05, 0.025]


def test_an_optimum_inside_is_not_extended_but_refined_by_as_many_trials() -> None:
    tried = trials({0.1: 3, 0.2: 1, 0.8: 2})
    assert extension(tried) is None
    assert edges(tried) == []
    assert [one.rate for one in refinement(tried)] == [0.14142, 0.4]


def test_the_edge_is_that_of_the_best_setting() -> None:
    tried = trials({0.1: 9, 0.2: 8, 0.4: 7}, tau=5) | trials({0.1: 3, 0.2: 1, 0.4: 2}, tau=10) | trials({0.1: 9}, tau=20)
    assert extension(tried) is None


def test_what_is_tuned_is_extended_too_at_the_best_rate_and_its_better_neighbour() -> None:
    tried = trials({0.1: 3, 0.2: 1, 0.4: 2}, tau=8) | trials({0.1: 9, 0.2: 8, 0.4: 9}, tau=16)
    assert edges(tried) == ["tau"]
    assert extension(tried) == [Trial((("tau", 4),), 0.2), Trial((("tau", 4),), 0.4)]


def test_the_rate_comes_first() -> None:
    tried = trials({0.1: 1, 0.2: 2, 0.4: 3}, tau=8) | trials({0.1: 9}, tau=16)
    assert edges(tried) == ["rate", "tau"]
    assert extension(tried) == [Trial((("tau", 8),), 0.05), Trial((("tau", 8),), 0.025)]


def test_what_a_method_refuses_is_the_end() -> None:
    tried = trials({0.1: 3, 0.2: 1, 0.4: 2}, gamma=0.9) | trials({0.1: 9}, gamma=0.5)
    assert extension(tried, lambda knobs: knobs["gamma"] < 1) is None
    assert extension(trials({0.1: 3, 0.2: 1, 0.4: 2}, tau=1) | trials({0.1: 9}, tau=4)) is None


def test_words_have_no_edge() -> None:
    tried = trials({0.1: 3, 0.2: 1, 0.4: 2}, install="arrival") | trials({0.1: 9}, install="exchange")
    assert edges(tried) == []
    assert extension(tried) is None


@given(st.dictionaries(st.sampled_from([0.1, 0.2, 0.4, 0.8, 1.6]), st.floats(0, 9), min_size=3))
def test_every_round_has_the_same_number_of_new_trials(rates: dict[float, float]) -> None:
    tried = trials(rates, tau=4) | trials({0.2: 10.0}, tau=8) | trials({0.2: 11.0}, tau=2)
    more = extension(tried) or refinement(tried)
    assert len(set(more) - set(tried)) == MORE


def test_equal_scores_are_decided_by_the_order_of_trials() -> None:
    tried = trials({0.4: 1, 0.1: 1, 0.2: 1})
    assert best(tried) == best(dict(reversed(tried.items()))) == Trial((), 0.1)
