"""Codecs: the golden bytes, which Java writes too; bounds of what rounding takes; what is refused."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mpca.algorithm.codecs import BLOCK, Codec
from mpca.algorithm.sharding import ShardPlan

WIRE = Path(__file__).parents[1] / "golden/wire"
GOLDEN = json.loads((WIRE / "codecs.json").read_text())
SHARDS = json.loads((WIRE / "encoded.json").read_text())

every = pytest.mark.parametrize("codec", Codec)
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
vectors = hnp.arrays(np.float32, st.integers(0, 3 * BLOCK), elements=floats, fill=floats)
scales = st.floats(-40, 37).map(lambda exponent: 10.0**exponent)


@st.composite
def bells(draw: st.DrawFn) -> np.ndarray:
    """Numbers of one magnitude, as differences are."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    return (rng.standard_normal(draw(st.integers(1, 700))) * draw(scales)).astype(np.float32)


def once(codec: Codec, values: np.ndarray) -> np.ndarray:
    return codec.decode(codec.encode(values, values.size), values.size, values.size)


@pytest.mark.parametrize("one", GOLDEN, ids=lambda one: f"{one['codec']}-{one['name']}")
def test_golden_chunks_are_written_and_read(one: dict[str, object]) -> None:
    codec, parameters = Codec(one["codec"]), int(str(one["parameters"]))
    values = np.frombuffer(bytes.fromhex(str(one["values"])), "<f4").astype(np.float32)
    data = codec.encode(values, parameters)
    assert data.hex() == one["bytes"]
    assert len(data) == codec.size(values.size, parameters)
    decoded = codec.decode(data, values.size, parameters)
    assert decoded.dtype == np.float32
    assert decoded.astype("<f4").tobytes().hex() == one["decoded"]


def numbers(seed: int, count: int) -> np.ndarray:
    """As ``tests/golden/make_wire.py``."""
    i = np.arange(count, dtype=np.int64)
    return (((i * 7919 + seed * 104729) % 20011 - 10005) * 2.0 ** -(8 + i // (70 + seed) % 24)).astype(np.float32)


@pytest.mark.parametrize("one", SHARDS, ids=lambda one: f"{one['codec']}-{one['elements']}")
def test_golden_shards_are_written_and_read_chunk_by_chunk(one: dict[str, Any]) -> None:
    codec, n, p, edges = Codec(one["codec"]), one["elements"], one["parameters"], one["edges"]
    values, base, sent = numbers(1, n), numbers(2, n), numbers(1, n)
    sent[:p] -= base[:p]
    if one["carried"]:
        sent[:p] += numbers(3, p)
    written = codec.encode_chunks(sent, edges, p)
    assert [len(data) for data in written] == one["lengths"]
    assert [crc32(data) for data in written] == one["crcs"]
    read = codec.decode_chunks(written, edges, p)
    rest = np.zeros(n, np.float32)
    rest[:p] = sent[:p] - read[:p]
    read[:p] += base[:p]
    assert crc32(rest.astype("<f4").tobytes()) == one["rest"]
    assert crc32(read.astype("<f4").tobytes()) == one["result"]
    np.testing.assert_array_equal(read[p:], values[p:])


@every
@given(st.one_of(vectors, bells()))
def test_what_was_decoded_once_is_written_without_loss(codec: Codec, values: np.ndarray) -> None:
    data = codec.encode(values, values.size)
    decoded = codec.decode(data, values.size, values.size)
    assert np.isfinite(decoded).all()
    again = once(codec, decoded)
    np.testing.assert_array_equal(again, decoded)


@given(st.one_of(vectors, bells()))
def test_bf16_takes_at_most_half_of_its_last_place(values: np.ndarray) -> None:
    wide = values.astype(np.float64)
    off = np.abs(once(Codec.BF16, values).astype(np.float64) - wide)
    # eight significant bits; the last place of denormals is 2^-133; at the end of the range there is no larger number
    bound = np.maximum(np.abs(wide) * 2.0**-8, 2.0**-134)
    bound[np.abs(wide) > 3.38e38] *= 2
    assert (off <= bound).all()


@pytest.mark.parametrize(("codec", "most"), [(Codec.INT8, 127), (Codec.INT4, 7)])
@given(st.one_of(vectors, bells()))
def test_integers_take_at_most_half_a_scale_of_their_own_block(codec: Codec, most: int, values: np.ndarray) -> None:
    wide = values.astype(np.float64)
    off = np.abs(once(codec, values).astype(np.float64) - wide)
    for start in range(0, values.size, BLOCK):
        largest = np.abs(wide[start : start + BLOCK]).max()
        bound = largest / most / 2 * (1 + 2.0**-15)
        assert (off[start : start + BLOCK] <= max(bound, most * 2.0**-126)).all()
        if largest < most * 2.0**-126 * (1 - 2.0**-16):
            assert (off[start : start + BLOCK] == np.abs(wide[start : start + BLOCK])).all()


@every
@given(bells())
def test_the_sign_does_not_matter(codec: Codec, values: np.ndarray) -> None:
    np.testing.assert_array_equal(once(codec, -values), -once(codec, values))


@every
@given(st.lists(bells(), min_size=1, max_size=4), st.integers(0, 1 << 20))
def test_a_sum_of_decoded_parts_is_off_by_the_parts_rests(codec: Codec, parts: list[np.ndarray], seed: int) -> None:
    size = min(part.size for part in parts)
    weights = np.random.default_rng(seed).uniform(0, 1, len(parts))
    decoded = [once(codec, part[:size]).astype(np.float64) for part in parts]
    rests = [part[:size].astype(np.float64) - one for part, one in zip(parts, decoded, strict=True)]
    exact = sum(w * part[:size].astype(np.float64) for w, part in zip(weights, parts, strict=True))
    kept = sum(w * (one + rest) for w, one, rest in zip(weights, decoded, rests, strict=True))
    np.testing.assert_allclose(kept, exact, rtol=1e-12, atol=1e-12 * max(np.abs(part).max() for part in parts))


@every
@given(st.integers(0, 900), st.integers(0, 900), st.integers(1, 5))
def test_blocks_begin_anew_at_the_edges_of_chunks(codec: Codec, parameters: int, buffers: int, chunks: int) -> None:
    elements = parameters + buffers
    values = np.random.default_rng(elements).standard_normal(elements).astype(np.float32)
    edges = list(ShardPlan.equal(elements, parameters, chunks).bounds)
    written = codec.encode_chunks(values, edges, parameters)
    for data, (a, b) in zip(written, pairwise(edges), strict=True):
        mine = max(0, min(b, parameters) - a)
        assert len(data) == codec.size(b - a, mine)
        assert data == codec.encode(values[a:b].copy(), mine)  # whatever lies beside it
    decoded = codec.decode_chunks(written, edges, parameters)
    np.testing.assert_array_equal(decoded, codec.rounded(values, edges, parameters))
    assert decoded[parameters:].tobytes() == values[parameters:].tobytes()


def test_a_shard_takes_a_half_a_quarter_an_eighth_of_its_bytes() -> None:
    n = 1 << 20
    assert [codec.size(n, n) / (4 * n) for codec in Codec] == [1 / 2, 1 / 4 + 1 / 256, 1 / 8 + 1 / 256]
    assert [codec.of_sums for codec in Codec] == [Codec.BF16, Codec.INT8, Codec.INT8]


@every
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_among_parameters_alone(codec: Codec, bad: float) -> None:
    values = np.float32([1, bad])
    with pytest.raises(ValueError, match="not finite: 1 of 2 parameters"):
        codec.encode(values, 2)
    assert codec.decode(codec.encode(values, 1), 2, 1)[1:].tobytes() == values[1:].tobytes()


@every
def test_what_has_another_form_is_refused(codec: Codec) -> None:
    values = np.float32([1, 2, 3])
    with pytest.raises(ValueError, match=r"parameters must lie in 0\.\.n: parameters=4, n=3"):
        codec.encode(values, 4)
    with pytest.raises(ValueError, match="not a float32 vector: float64"):
        codec.encode(values.astype(np.float64), 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"not a chunk of 3 elements, {codec.value}: bytes=2"):
        codec.decode(b"xx", 3, 3)
