"""The norm limit by numbers: who has moved too far, compared with whom."""

from __future__ import annotations

import math

import pytest

from mpca.driver.norms import NormLimit
from mpca.wire.orders import Frozen

SHARDS = 3


def moved(distances: list[float], tau: list[int] | int = 4) -> dict[int, Frozen]:
    """Contributions of agents 0, 1, ...; a NaN is not finite."""
    taus = tau if isinstance(tau, list) else [tau] * len(distances)
    return {
        agent: Frozen(agent, 0, taus[agent], 7, math.isfinite(distance), distance, 1.0, 1.5)
        for agent, distance in enumerate(distances)
    }


def left_out(limit: NormLimit, cycle: int, *distances: float, tau: list[int] | int = 4) -> set[int]:
    return set(limit.judge(cycle, moved(list(distances), tau)))


@pytest.mark.parametrize("far", [10.1, 1e3, 1e30, 3e38 * 1e4])
def test_what_moved_more_than_the_limit_times_the_median_of_the_others_is_left_out(far: float) -> None:
    limit = NormLimit(10.0, SHARDS)
    assert left_out(limit, 0, 0.5, 1.0, 2.0, 10.0) == set()
    assert left_out(limit, 1, 0.5, 1.0, 2.0, far) == {3}
    assert left_out(limit, 2, far, 0.5, 1.0, 2.0) == {0}


def test_the_reason_has_the_numbers() -> None:
    reasons = NormLimit(10.0, SHARDS).judge(0, moved([1.0, 0.5, 2.0, 1e30], [4, 6, 5, 5]))
    assert reasons == {
        3: "norm limit: it moved 1e+30 in 5 updates, 1e+30 times the 1 that the others moved in 5; cluster.norm_limit=10"
    }


def test_zero_is_off() -> None:
    assert left_out(NormLimit(0.0, SHARDS), 0, 1.0, 1.0, 1.0, 1e30) == set()


def test_half_of_the_agents_may_be_wild() -> None:
    limit = NormLimit(10.0, SHARDS)
    assert left_out(limit, 0, 1e30, 1.0, 1e30, 1.0) == {0, 2}
    assert left_out(limit, 1, 1.0, 1e30, 1.0, 1e25, 1e20, 1.0) == {1, 3, 4}


@pytest.mark.parametrize(("fast", "slow"), [(400, 1), (150, 13)])
def test_an_agent_of_another_speed_may_have_moved_as_much_more(fast: int, slow: int) -> None:
    assert left_out(NormLimit(10.0, SHARDS), 0, 100.0, 1.0, 1.0, 1.0, tau=[fast, slow, slow, slow]) == set()
    assert left_out(NormLimit(10.0, SHARDS), 0, 100.0, 1.0, 1.0, 1.0, tau=[slow, fast, fast, fast]) == set()
    assert left_out(NormLimit(10.0, SHARDS), 0, 1e30, 1.0, 1.0, 1.0, tau=[fast, slow, slow, slow]) == {0}


def test_of_two_each_is_compared_with_what_the_other_moved_in_the_last_exchanges_of_the_shard() -> None:
    limit = NormLimit(10.0, SHARDS)
    assert left_out(limit, 0, 1e30, 1.0) == {0}  # of the first exchange the other one is all there is
    for exchange in range(1, 4):
        assert left_out(limit, SHARDS * exchange, 1.0, 1.0) == set()
    assert left_out(limit, SHARDS * 4, 1.0, 1e30) == {1}
    assert left_out(limit, SHARDS * 5, 1.0) == set()
    assert left_out(limit, SHARDS * 6, 1e30) == {0}  # nobody else is there: those of before count


def test_with_three_others_or_more_only_this_exchange_counts() -> None:
    """Five agents that moved 0.01 for five exchanges now move 0.05, and one of them eight times as much."""
    limit = NormLimit(10.0, SHARDS)
    for exchange in range(5):
        assert left_out(limit, SHARDS * exchange, *[0.01] * 5) == set()
    assert left_out(limit, SHARDS * 5, 0.05, 0.05, 0.05, 0.05, 0.4) == set()


def test_shards_are_not_compared_with_one_another() -> None:
    limit = NormLimit(10.0, SHARDS)
    for exchange in range(4):
        assert left_out(limit, SHARDS * exchange, 1.0, 1.0) == set()
        assert left_out(limit, SHARDS * exchange + 1, 500.0, 500.0) == set()  # buffers: numbers of another size
    assert left_out(limit, SHARDS * 4, 1.0, 500.0) == {1}


def test_what_lies_further_back_than_five_exchanges_does_not_count() -> None:
    limit = NormLimit(10.0, SHARDS)
    assert left_out(limit, 0, 1.0, 1.0) == set()
    assert left_out(limit, SHARDS * 5, 50.0) == {0}
    assert left_out(limit, SHARDS * 6, 50.0) == set()


def test_when_all_move_further_than_before_the_training_has_changed_and_nobody_is_left_out() -> None:
    limit = NormLimit(10.0, SHARDS)
    for exchange in range(4):
        left_out(limit, SHARDS * exchange, 1.0, 1.1)
    assert left_out(limit, SHARDS * 4, 30.0, 33.0) == set()


def test_what_was_left_out_is_no_measure_for_others() -> None:
    limit = NormLimit(10.0, SHARDS)
    for exchange in range(5):
        assert left_out(limit, SHARDS * exchange, 1.0, 1e6) == {1}
    assert left_out(limit, SHARDS * 5, 15.0, 1.0) == {0}


def test_who_took_no_update_or_is_not_finite_neither_is_judged_nor_a_measure() -> None:
    limit = NormLimit(10.0, SHARDS)
    assert left_out(limit, 0, 1.0, 1.0, 1.0, 1e30, tau=[4, 4, 4, 0]) == set()
    assert left_out(limit, 1, 1.0, 0.0, 0.0, 1e30, tau=[4, 0, 0, 4]) == {3}
    assert left_out(limit, 2, 1.0, math.nan, math.nan, 1e30) == {3}


def test_a_joiner_may_move_as_the_joint_model_does_while_the_pull_keeps_the_others_near_it() -> None:
    limit = NormLimit(10.0, SHARDS)
    limit.joint_moved(0, 8.0)
    limit.joint_moved(1, 0.01)
    assert left_out(limit, 0, 0.1, 0.1, 0.1, 12.0) == set()
    assert left_out(limit, 1, 0.1, 0.1, 0.1, 12.0) == {3}  # of another shard
    (reason,) = limit.judge(3, moved([0.1, 0.1, 0.1, 1e30])).values()
    assert "1.25e+29 times the 8 that the joint model moved; " in reason
    limit.joint_moved(0, math.inf)
    assert left_out(limit, 6, 0.1, 0.1, 0.1, 12.0) == {3}


def test_where_the_others_rest_the_measure_is_how_large_the_joint_model_is() -> None:
    limit = NormLimit(10.0, SHARDS)
    limit.joint_moved(0, 1e-6, size=0.5)
    assert left_out(limit, 0, 1e-6, 1e-6, 1e-6, 4.9) == set()
    (reason,) = limit.judge(3, moved([1e-6, 1e-6, 1e-6, 5.1])).values()
    assert "10.2 times the 0.5 that is the joint model's norm; " in reason
    limit.joint_moved(0, 1e-6, size=math.inf)
    assert left_out(limit, 6, 1e-6, 1e-6, 1e-6, 4.9) == {3}


def test_where_nothing_moves_there_is_nothing_to_compare_with() -> None:
    assert left_out(NormLimit(10.0, SHARDS), 0, 0.0, 0.0, 0.0, 1e-3) == set()


def test_a_cycle_that_is_frozen_again_is_judged_by_all_that_was_handed_over_for_it() -> None:
    limit = NormLimit(10.0, SHARDS)
    first = moved([5.0, 1.0, 1.0, 1e30])
    assert set(limit.judge(0, first)) == {3}
    del first[3]
    assert set(limit.judge(0, first)) == {3}, "agent 0 is not compared with two alone"
