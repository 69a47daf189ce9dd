"""Rests: nothing is lost, whatever is carried out again, given up or cut anew; and bases by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpca.algorithm import correct, local_mean, weighted_sum
from mpca.algorithm.bases import Base, HeldBases
from mpca.algorithm.codecs import Codec
from mpca.algorithm.rests import Rests, with_rest

every = pytest.mark.parametrize("codec", Codec)


def vector(seed: int, size: int = 300, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(size) * scale).astype(np.float32)


@every
@given(st.data())
def test_sums_and_rests_conserve_what_was_handed_over(codec: Codec, data: st.DataObject) -> None:
    """Executors whose agents are replaced, and one owner: over all cycles that were taken, what went in is what came out."""
    executors, n = data.draw(st.integers(1, 4)), 40
    parts = [Rests(codec) for _ in range(executors)]
    owner = Rests(codec.of_sums)
    handed, joint, dropped = np.zeros(n), np.zeros(n), np.zeros(n)
    part_rest, sum_rest = [np.zeros(n)] * executors, np.zeros(n)
    in_last: dict[int, int] = {}
    taken, ranges = None, 0
    for cycle in range(data.draw(st.integers(1, 8))):
        values = [vector(cycle * 10 + e, n) for e in range(executors)]
        here = data.draw(st.sets(st.integers(0, executors - 1), min_size=1))
        ranges += data.draw(st.booleans())
        for _ in range(data.draw(st.integers(1, 3))):  # carried out again: the same bytes
            sent = {e: parts[e].encode(0, cycle, values[e], n, in_last.get(e)) for e in sorted(here)}
            mean = weighted_sum([codec.decode(sent[e], n, n) for e in sorted(here)], [1.0] * len(here))
            assert mean is not None
            total = owner.encode(0, cycle, mean, n, taken, ranges)
        if data.draw(st.booleans()):
            continue  # given up: the driver takes nothing, and what it left is not added to anything
        old = owner.rest(0, taken, n, ranges).astype(np.float64)
        dropped += sum_rest - old  # ranges have changed
        joint += codec.of_sums.decode(total, n, n)
        sum_rest = owner.rest(0, cycle, n, ranges).astype(np.float64)
        for e in here:
            before = part_rest[e]
            part_rest[e] = parts[e].rest(0, cycle, n).astype(np.float64)
            handed += (values[e].astype(np.float64) - (part_rest[e] - before)) / len(here)
            in_last[e] = cycle
        taken = cycle
    np.testing.assert_allclose(joint + sum_rest + dropped, handed, atol=1e-4)


@every
def test_what_is_sent_tends_to_the_mean_of_what_was_to_be_sent(codec: Codec) -> None:
    rests, values, sent = Rests(codec), vector(1), np.zeros(300)
    for cycle in range(200):
        data = rests.encode(0, cycle, values, 300, cycle - 1)
        sent += codec.decode(data, 300, 300)
    assert np.abs(sent / 200 - values).max() < 0.02 * np.abs(values).max()


@every
def test_a_sum_that_is_made_again_has_the_same_bytes_and_leaves_the_same(codec: Codec) -> None:
    rests = Rests(codec)
    rests.encode("shard", 3, vector(1), 300)
    first = rests.encode("shard", 6, vector(2), 300, after=3)
    left = rests.rest("shard", 6, 300).copy()
    for _ in range(16):
        assert rests.encode("shard", 6, vector(2), 300, after=3) == first
        np.testing.assert_array_equal(rests.rest("shard", 6, 300), left)


def test_a_cycle_that_was_given_up_leaves_nothing() -> None:
    rests, other = Rests(Codec.INT4), Rests(Codec.INT4)
    rests.encode(0, 3, vector(1), 300)
    other.encode(0, 3, vector(1), 300)
    rests.encode(0, 6, vector(2), 300, after=3)  # never taken
    assert rests.encode(0, 9, vector(3), 300, after=3) == other.encode(0, 9, vector(3), 300, after=3)


def test_a_rest_is_dropped_when_ranges_change_or_the_model_is_cut_anew() -> None:
    plain, rests = Codec.INT4.encode(vector(2), 300), Rests(Codec.INT4)
    rests.encode(0, 3, vector(1), 300, ranges=("1", "2"))
    assert rests.encode(0, 6, vector(2), 300, after=3, ranges=("1", "3")) == plain
    assert rests.encode(0, 6, vector(2), 300, after=3, ranges=("1", "2")) != plain
    rests.clear()
    assert rests.encode(0, 6, vector(2), 300, after=3, ranges=("1", "2")) == plain


def test_buffers_leave_nothing_and_what_is_not_finite_keeps_the_old_rest() -> None:
    rests = Rests(Codec.INT4)
    values = np.float32([1, 0.3, 0.7, np.inf])
    rests.encode(0, 1, values, 2)
    rest = rests.rest(0, 1, 4)
    assert rest[1] != 0
    assert (rest[2:] == 0).all()
    with pytest.raises(ValueError, match="not finite"):
        rests.encode(0, 2, np.float32([np.nan, 0, 0, 0]), 2, after=1)
    np.testing.assert_array_equal(rests.rest(0, 1, 4), rest)


@every
def test_delay_corrected_agents_keep_what_was_in_no_sum(codec: Codec) -> None:
    """Two agents of one executor, at rest: after a sum and its arrivals all that they had is in the model or in them."""
    base, snapshots, taus = vector(0), [vector(1), vector(2)], [3.0, 1.0]
    mean = local_mean(snapshots, taus)
    assert mean is not None
    part = Rests(codec)
    sent = codec.decode(part.encode(0, 1, mean - base, 300), 300, 300)
    joint, rest = base + sent, part.rest(0, 1, 300)
    locals_ = [one.copy() for one in snapshots]
    for local, snapshot in zip(locals_, snapshots, strict=True):
        correct(local, with_rest(joint, rest), snapshot)
    after = local_mean(locals_, taus)
    assert after is not None
    np.testing.assert_allclose(after, mean, atol=1e-5)
    assert np.abs(joint - mean).max() > 1e-4  # without the rest this would be lost


def test_a_base_is_held_by_its_name() -> None:
    held = HeldBases()
    vectors = [vector(version) for version in range(5)]
    names = [Base.of(1, 0, version, one) for version, one in enumerate(vectors)]
    for name, one in zip(names[:3], vectors, strict=False):
        assert held.hold(name, one)
    assert [held.get(name) is not None for name in names] == [False, True, True, False, False]
    assert not held.hold(names[0], vectors[0])  # older than two others
    with pytest.raises(ValueError, match="not the bytes of Base"):
        held.hold(names[4], vectors[3])
    other = Base.of(1, 1, 7, vectors[0])
    assert held.hold(other, vectors[0])  # of another shard
    assert held.get(names[1]) is not None
    newer = Base.of(2, 0, 2, vectors[2])
    assert held.hold(newer, vectors[2])
    assert held.get(names[2]) is None  # of the term before
    assert not held.hold(names[3], vectors[3])
    held.clear()
    assert held.get(newer) is None
