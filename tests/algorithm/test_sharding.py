"""Where shards are cut."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpca.algorithm import ShardPlan, shards_for
from mpca.algorithm.sharding import AGE_COUNTS, EDGE_ELEMENTS, ELEMENT_BYTES, LEAST_SHARDS, MOST_SHARDS, SHARD_LIMIT_BYTES
from mpca.errors import ConfigError


@given(st.integers(0, 10**10), st.integers(1, 40))
def test_equal_shards_cover_everything_and_are_of_two_lengths_at_most(total: int, shards: int) -> None:
    if total * 4 // shards > 2**31 - 8192:
        total %= 10**8
    plan = ShardPlan.equal(total, total, shards)
    assert sum(plan.sizes) == total
    if total < (shards * EDGE_ELEMENTS) ** 2:
        assert max(plan.sizes) - min(plan.sizes) <= 1
        assert list(plan.bounds) == [j * total // shards for j in range(shards + 1)]
    else:
        assert not any(edge % EDGE_ELEMENTS for edge in plan.bounds[:-1])
        assert len(set(plan.sizes[:-1])) <= 1, "arrays that are used again are of two lengths"
        assert plan.sizes[-1] > total / shards * 0.98
        assert max(plan.sizes) < total / shards + EDGE_ELEMENTS


def test_as_many_shards_as_an_error_asks_for_are_enough() -> None:
    limit = SHARD_LIMIT_BYTES // ELEMENT_BYTES
    for total in (3 * limit, 3 * limit - 1, 3 * limit - EDGE_ELEMENTS, 2 * limit + 1):
        with pytest.raises(ConfigError, match=r"set method\.shards to 3 or more"):
            ShardPlan.equal(total, total, 2)
        assert max(ShardPlan.equal(total, total, 3).sizes) <= limit


@given(st.lists(st.integers(0, 50), max_size=7), st.integers(1, 4))
def test_layer_aligned_has_the_smallest_largest_shard(sizes: list[int], shards: int) -> None:
    plan = ShardPlan.layer_aligned(sizes, sum(sizes), shards)
    edges = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    assert set(plan.bounds) <= set(edges)
    every = ([0, *cuts, edges[-1]] for cuts in combinations_with_replacement(edges, shards - 1))
    best = min(max(b - a for a, b in pairwise(cuts)) for cuts in every)
    assert max(plan.sizes) == best


def test_beside_the_largest_shard_the_others_are_alike() -> None:
    assert ShardPlan.layer_aligned([9, 1, 1, 1, 1], parameters=13, shards=3).bounds == (0, 9, 11, 13)


def test_one_tensor_of_77_percent_decides_the_largest_shard() -> None:
    # VGG-A: why cuts inside tensors are the default.
    sizes = [3, 5, 77, 12, 3]
    assert max(ShardPlan.layer_aligned(sizes, 100, 3).sizes) == 77
    assert max(ShardPlan.equal(100, 100, 3).sizes) == 34


def test_more_shards_than_elements_leaves_empty_ones() -> None:
    plan = ShardPlan.equal(2, 2, 5)
    assert plan.sizes == (0, 0, 1, 0, 1)
    assert plan.slice(0) == slice(0, 0)
    assert ShardPlan.layer_aligned([2], 2, 3).total == 2
    assert ShardPlan.equal(0, 0, 3).sizes == (0, 0, 0)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 8))
def test_parameters_of_shards_add_up(parameters: int, buffers: int, shards: int) -> None:
    plan = ShardPlan.equal(parameters + buffers, parameters, shards)
    counts = [plan.parameters_in(j) for j in range(shards)]
    assert sum(counts) == parameters
    for j, count in enumerate(counts):
        part = range(plan.total)[plan.slice(j)]
        assert count == sum(element < parameters for element in part)


def test_a_shard_over_2_gib_is_refused_with_how_many_it_takes() -> None:
    limit = ((1 << 31) - 4096) // 4
    assert ShardPlan.equal(limit, limit, 1).sizes == (limit,)
    with pytest.raises(ConfigError, match=r"over 2 GiB.*method.shards=1; set method.shards to 2 or more"):
        ShardPlan.equal(limit + 1, limit + 1, 1)
    with pytest.raises(ConfigError, match=r"method.layer_aligned=false"):
        ShardPlan.layer_aligned([limit + 1, 5], limit + 6, 2)


@pytest.mark.parametrize("bounds", [(0, 5), (0, 6, 5, 10), (1, 5, 10), (0, 5, 9)])
def test_edges_that_are_none_are_refused(bounds: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="not the edges"):
        ShardPlan(10, 10, max(2, len(bounds) - 1), bounds)


def test_no_shards_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"method.shards = 0"):
        ShardPlan.equal(10, 10, 0)
    with pytest.raises(ConfigError, match=r"method.shards = 0"):
        ShardPlan.layer_aligned([10], 10, 0)
    with pytest.raises(ValueError, match="parameters=11"):
        ShardPlan.equal(10, 11, 2)


def chosen(fixed_s: float, wire_s: float) -> int:
    return shards_for(lambda share: fixed_s + share * wire_s)


SECONDS = st.floats(1e-4, 1e4)


@given(SECONDS, st.floats(0, 1e4))
def test_no_other_number_of_shards_has_a_smaller_sum_of_period_and_age(f: float, m: float) -> None:
    def counted(shards: int) -> float:
        return shards * f + m + AGE_COUNTS * 3 * (f + m / shards)

    shards = chosen(f, m)
    assert LEAST_SHARDS <= shards <= MOST_SHARDS
    least = min(counted(one) for one in range(LEAST_SHARDS, MOST_SHARDS + 1))
    assert counted(shards) <= least * (1 + 1e-2), "its neighbour may be a little better: a root is rounded"


@given(SECONDS, SECONDS, st.floats(1, 100))
def test_a_slower_wire_gives_no_fewer_shards_and_longer_fixed_seconds_no_more(f: float, m: float, factor: float) -> None:
    assert chosen(f, m * factor) >= chosen(f, m) >= chosen(f * factor, m)


@given(SECONDS, SECONDS, st.sampled_from([2.0**power for power in range(-8, 9)]))
def test_the_number_of_shards_depends_on_the_ratio_alone(f: float, m: float, unit: float) -> None:
    assert chosen(f * unit, m * unit) == chosen(f, m)
