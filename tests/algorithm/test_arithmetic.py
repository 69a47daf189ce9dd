"""Properties of the arithmetic: order, dtypes, bits, what is left unchanged and what is refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mpca.algorithm import (
    JointShard,
    Outer,
    beta_at,
    blend,
    correct,
    extrapolate,
    gamma_at,
    init,
    local_mean,
    outer_step,
    pull,
    tilt,
    trajectory,
    update,
    weighted_sum,
)

floats = st.floats(-1e6, 1e6, width=32)
vectors = hnp.arrays(np.float32, st.integers(1, 20), elements=floats)
shares = st.floats(0, 1)


def single(value: float) -> float:
    """A double rounded to float32, by C and not by numpy."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


@given(st.data())
def test_sum_has_the_bits_of_the_scalar_rule(data: st.DataObject) -> None:
    n, parts = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    xs = [data.draw(hnp.arrays(np.float32, n, elements=floats)) for _ in range(parts)]
    weights = data.draw(st.lists(st.integers(0, 1000), min_size=parts, max_size=parts))
    total = float(sum(weights))
    result = weighted_sum(xs, weights)
    if total == 0:
        assert result is None
        return
    expected = []
    for element in range(n):
        acc = 0.0
        for x, weight in zip(xs, weights, strict=True):
            acc = single(acc + (weight / total) * float(x[element]))
        expected.append(acc)
    assert result is not None
    assert result.dtype == np.float32
    assert result.tobytes() == np.array(expected, np.float32).tobytes()


@given(st.data(), st.integers(1, 10**6))
def test_equal_weights_are_the_plain_mean(data: st.DataObject, tau: int) -> None:
    n, parts = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
    xs = [data.draw(hnp.arrays(np.float32, n, elements=floats)) for _ in range(parts)]
    weighted, plain = weighted_sum(xs, [tau] * parts), weighted_sum(xs, [1] * parts)
    assert weighted is not None
    assert plain is not None
    assert weighted.tobytes() == plain.tobytes()
    np.testing.assert_allclose(weighted, np.mean(np.float64(xs), axis=0), rtol=1e-4, atol=1.0)


@given(vectors, st.integers(1, 10**9))
def test_one_contributor_is_passed_through_to_the_bit(x: np.ndarray, weight: int) -> None:
    result = weighted_sum([x], [weight])
    assert result is not None
    np.testing.assert_array_equal(result, x)
    assert local_mean([x], [0]) is x


def test_large_vectors_have_the_bits_of_small_ones() -> None:
    # numpy buffers casts in blocks; a block edge must not show.
    rng = np.random.default_rng(7)
    xs = [rng.standard_normal(100_003, np.float32) for _ in range(3)]
    whole = weighted_sum(xs, [3, 5, 9])
    pieces = [weighted_sum([x[i : i + 997] for x in xs], [3, 5, 9]) for i in range(0, 100_003, 997)]
    assert whole is not None
    assert whole.tobytes() == b"".join(piece.tobytes() for piece in pieces if piece is not None)


def test_float64_and_integers_are_averaged_in_float64() -> None:
    for dtype in (np.float64, np.int64):
        result = weighted_sum([np.array([1, 10], dtype), np.array([4, 20], dtype)], [1, 3])
        assert result is not None
        assert result.dtype == np.float64
        np.testing.assert_array_equal(result, [3.25, 17.5])


@pytest.mark.parametrize(
    ("parts", "weights"),
    [([], []), ([np.zeros(2)], [1, 2]), ([np.zeros(2), np.zeros(3)], [1, 1]), ([np.zeros(2)], [-1])],
    ids=["none", "count", "shape", "negative"],
)
def test_sum_refuses(parts: list[np.ndarray], weights: list[float]) -> None:
    with pytest.raises(ValueError, match=r"part|shapes|negative"):
        weighted_sum(parts, weights)


def test_not_a_number_is_not_hidden_by_a_weight() -> None:
    with pytest.raises(ValueError, match="negative"):
        weighted_sum([np.zeros(1)], [float("nan")])


@given(vectors, shares, shares)
def test_update_changes_nothing_it_was_given(x: np.ndarray, beta: float, delta: float) -> None:
    state = update(init(x, x.size // 2), x[::-1].copy(), 1.0, 0.5)
    kept = (state.x.tobytes(), state.v.tobytes(), state.k)
    mean = (x + 1).astype(np.float32)
    held = mean.tobytes()
    after = update(state, mean, beta, delta)
    extrapolate(after, 0.7)
    assert (state.x.tobytes(), state.v.tobytes(), state.k) == kept
    assert mean.tobytes() == held
    assert after.k == state.k + 1
    assert after.x.dtype == after.v.dtype == np.float32


@given(vectors)
def test_beta_one_absorbs_the_mean_to_the_bit(x: np.ndarray) -> None:
    np.testing.assert_array_equal(blend(x[::-1].copy(), x, beta=1.0), x)


@given(vectors, shares)
def test_blend_stays_between_old_and_new(x: np.ndarray, beta: float) -> None:
    mean = x[::-1].copy()
    result = blend(x, mean, beta)
    slack = 1e-6 * np.maximum(np.abs(x), np.abs(mean)) + 1e-30
    assert np.all(result >= np.minimum(x, mean) - slack)
    assert np.all(result <= np.maximum(x, mean) + slack)


@given(vectors, st.floats(0, 2))
def test_buffers_are_blended_but_never_extrapolated(x: np.ndarray, gamma: float) -> None:
    parameters = x.size // 2
    state = update(init(x, parameters), (x + 3).astype(np.float32), 0.5, 0.5)
    ahead = extrapolate(state, gamma)
    assert state.v.size == parameters
    np.testing.assert_array_equal(ahead[parameters:], state.x[parameters:])
    assert ahead.shape == x.shape


def test_gamma_zero_sends_the_joint_state_itself() -> None:
    state = JointShard(np.float32([1]), np.float32([5]), 3)
    assert extrapolate(state, 0.0) is state.x


@given(st.data(), st.booleans())
def test_an_outer_step_without_momentum_is_eq8_and_at_rate_1_it_is_the_mean_to_the_bit(data: st.DataObject, form: bool) -> None:
    x = data.draw(vectors)
    mean = data.draw(hnp.arrays(np.float32, x.size, elements=floats))
    p, rate = data.draw(st.integers(0, x.size)), data.draw(st.floats(0.1, 1))
    moved = outer_step(init(x, p), mean, Outer(rate, 0.0, form)).x
    assert moved[:p].tobytes() == blend(x, mean, rate)[:p].tobytes()
    assert moved[p:].tobytes() == mean[p:].tobytes()
    np.testing.assert_array_equal(outer_step(init(x, p), mean, Outer(1.0, 0.0, form)).x, mean)


@pytest.mark.parametrize("form", [True, False])
def test_an_outer_optimiser_leaves_a_joint_model_at_rest(form: bool) -> None:
    state = init(np.float32([1, 2, 3]), 2)
    after = outer_step(state, state.x.copy(), Outer(0.7, 0.9, form))
    np.testing.assert_array_equal(after.x, state.x)
    np.testing.assert_array_equal(after.v, [0, 0])


@given(vectors)
def test_pull_ends_and_edges(x: np.ndarray) -> None:
    target = np.zeros_like(x)
    np.testing.assert_array_equal(pull(x.copy(), target, 0.0), x)
    np.testing.assert_array_equal(pull(x.copy(), target, 1.0), target)
    local = x.copy()
    assert pull(local, target, 0.5) is local


def test_tilt_is_the_gradient_of_the_regulariser() -> None:
    local, target, h = np.array([1.0, -2.0]), np.array([0.5, 3.0]), 1e-6

    def regulariser(x: np.ndarray, alpha: float) -> float:
        return alpha / 2 * sum((a - b) ** 2 for a, b in zip(x, target, strict=True))

    for alpha in (0.3, 5.0):  # a weight, which may be above 1
        numeric = [(regulariser(local + h * e, alpha) - regulariser(local - h * e, alpha)) / (2 * h) for e in np.eye(2)]
        np.testing.assert_allclose(tilt(np.zeros(2), local, target, alpha), numeric, rtol=1e-6)


@pytest.mark.parametrize("alpha", [-0.1, float("inf"), float("nan")])
def test_a_weight_that_is_negative_or_not_finite_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match=str(alpha)):
        tilt(np.zeros(1), np.zeros(1), np.zeros(1), alpha)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_alpha_outside_its_range_is_refused_with_its_value(alpha: float) -> None:
    with pytest.raises(ValueError, match=str(alpha)):
        pull(np.zeros(1), np.zeros(1), alpha)


def test_shapes_that_differ_are_refused() -> None:
    one, two = np.zeros(1), np.zeros(2)
    with pytest.raises(ValueError, match="shapes differ"):
        pull(one, two, 0.5)
    with pytest.raises(ValueError, match="shapes differ"):
        tilt(two, one, one, 0.5)
    with pytest.raises(ValueError, match="shapes differ"):
        correct(one, one, two)
    with pytest.raises(ValueError, match="shapes differ"):
        correct(two, one, two)
    with pytest.raises(ValueError, match="not of this shard"):
        update(init(one, 1), two, 1.0, 0.5)
    with pytest.raises(ValueError, match="not of this shard"):
        update(init(np.zeros(1, np.float32), 1), one, 1.0, 0.5)
    with pytest.raises(ValueError, match="not of this shard"):
        outer_step(init(one, 1), two, Outer(1.0, 0.5))
    with pytest.raises(ValueError, match="parameters=3"):
        init(two, 3)


@pytest.mark.parametrize("ramp", [1, 2, 20])
def test_a_ramp_begins_at_the_first_exchange_and_ends_at_its_length(ramp: int) -> None:
    assert (beta_at(0, 0.9, ramp), gamma_at(0, 0.7, ramp)) == (1.0, 0.0)
    assert (beta_at(ramp, 0.9, ramp), gamma_at(ramp, 0.7, ramp)) == (0.9, 0.7)


def test_without_a_ramp_both_rates_are_what_they_will_be_from_the_start() -> None:
    assert (beta_at(0, 0.9, 0), gamma_at(0, 0.7, 0)) == (0.9, 0.7)


def test_alpha_vanishes_in_bf16_and_not_in_fp32() -> None:
    # Why pulls are done in fp32: bf16 has 8 bits of mantissa, so x - 0.002 x rounds back to x.
    x = np.float32([1.0])
    moved = pull(x.copy(), np.float32([0.998]), alpha=0.05)
    assert moved[0] < 1.0
    bf16 = (moved.view(np.uint32) + 0x8000) & 0xFFFF0000
    assert bf16.view(np.float32)[0] == 1.0


@given(vectors, shares, shares, st.integers(0, 40))
def test_one_pass_gives_the_bits_of_blend_and_trajectory(x: np.ndarray, beta: float, delta: float, repeats: int) -> None:
    x = np.tile(x, 1 + repeats * 4096 // max(1, x.size))  # over several blocks too, and their edges
    p = x.size * 2 // 3
    state = update(init(x, p), x[::-1].copy(), 1.0, 0.5)
    mean = (x * 3 + 1).astype(np.float32)
    moved = blend(state.x, mean, beta)
    expected = moved.tobytes(), trajectory(state.v, state.x[:p], moved[:p], delta).tobytes()
    apart = update(state, mean, beta, delta)
    inside = update(state, mean, beta, delta, into=mean)
    assert inside.x is mean
    assert (apart.x.tobytes(), apart.v.tobytes()) == (inside.x.tobytes(), inside.v.tobytes()) == expected
    v = state.v.copy()
    over = update(state._replace(v=v), (x * 3 + 1).astype(np.float32), beta, delta, v_into=v)
    assert over.v is v
    assert (over.x.tobytes(), over.v.tobytes()) == expected
    ahead = inside.x.copy()
    ahead[:p] += inside.v * 0.7
    room = np.full_like(ahead, np.nan)
    assert extrapolate(inside, 0.7, room) is room
    assert room.tobytes() == extrapolate(inside, 0.7).tobytes() == ahead.tobytes()


@given(vectors, shares, shares, st.booleans(), st.integers(0, 40))
def test_an_outer_step_in_one_pass_gives_the_bits_of_its_formula(
    x: np.ndarray, rate: float, momentum: float, nesterov: bool, repeats: int
) -> None:
    x = np.tile(x, 1 + repeats * 4096 // max(1, x.size))
    p = x.size * 2 // 3
    outer, mean, v = Outer(rate, momentum, nesterov), (x * 3 + 1).astype(np.float32), x[:p][::-1].copy()
    after = (mean[:p] - x[:p]) + v * np.float32(momentum)
    moved = blend(x, mean, rate)
    moved[p:] = mean[p:]
    if momentum:
        moved[:p] += (after if nesterov else v) * np.float32(rate * momentum)
    apart = outer_step(JointShard(x, v, 1), mean, outer)
    inside = outer_step(JointShard(x, v, 1), mean, outer, into=mean, v_into=v)
    assert inside.x is mean
    assert inside.v is v
    assert (apart.x.tobytes(), apart.v.tobytes()) == (inside.x.tobytes(), inside.v.tobytes())
    assert (inside.x.tobytes(), inside.v.tobytes()) == (moved.tobytes(), after.tobytes())
