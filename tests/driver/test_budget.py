"""Heaps: what is enough passes and says so, what is not names the setting and the number."""

from __future__ import annotations

import math

import pytest

from mpca.driver.budget import check_heaps, driver_heap, executor_heap, kept_for_codec
from mpca.errors import ConfigError

MIB = 1 << 20


def test_a_small_model_fits_and_the_line_says_what_is_needed() -> None:
    line = check_heaps([0, 1000, 2000], 1, 512 * MIB, 512 * MIB)
    assert line.startswith("model 7.8 KiB, shards of 3.9 KiB")
    assert "executor 300.0 MiB / 512.0 MiB" in line


@pytest.mark.parametrize(("executor", "driver", "named"), [(512, 4096, "executor_memory"), (4096, 512, "spark.driver.memory")])
def test_a_heap_that_is_too_small_is_refused_with_what_it_needs(executor: int, driver: int, named: str) -> None:
    elements = 100 * MIB // 4
    with pytest.raises(ConfigError, match=named) as refusal:
        check_heaps([0, elements, 2 * elements, 3 * elements], 1, executor * MIB, driver * MIB)
    # seven shards of 100 MiB in 60 % of the heap above 300 MiB; the driver four and the whole model, which is three
    assert f"needs {math.ceil(300 + 700 / 0.6)}m; " in str(refusal.value)
    assert " = 512m: too little" in str(refusal.value)


def test_several_agents_of_an_executor_need_room_for_their_own_yields() -> None:
    assert executor_heap(10 * MIB, 2) - executor_heap(10 * MIB, 1) == pytest.approx(4 * 10 * MIB / 0.6, abs=2)
    assert driver_heap(0, 0) == 300 * MIB


def test_each_agent_that_asks_by_itself_may_have_an_answer_on_the_driver() -> None:
    assert driver_heap(10 * MIB, 10 * MIB, 8) - driver_heap(10 * MIB, 10 * MIB) == pytest.approx(8 * 10 * MIB / 0.6, abs=2)
    with pytest.raises(ConfigError, match=r"spark\.driver\.memory"):
        check_heaps([0, 100 * MIB // 4], 1, 4096 * MIB, 2048 * MIB, answers=8)
    assert check_heaps([0, 100 * MIB // 4], 1, 4096 * MIB, 2048 * MIB)


@pytest.mark.parametrize(("rests", "of_parts"), [("dropped", 0), ("answered", 1), ("carried", 2)])
@pytest.mark.parametrize("executors", [1, 4])
def test_a_codec_keeps_bases_and_rests(rests: str, of_parts: int, executors: int) -> None:
    """Two versions of each base, what is left of an executor's parts, and its share of what is left of two sums."""
    assert kept_for_codec(32 * MIB, rests, executors) == (2 + of_parts + 2 / executors) * 32 * MIB


def test_what_a_codec_keeps_may_have_the_heap_that_blocks_may_not() -> None:
    driver = driver_heap(10 * MIB, 30 * MIB, coded_bytes=30 * MIB) - driver_heap(10 * MIB, 30 * MIB)
    assert driver == pytest.approx(2 * 30 * MIB / 0.6, abs=2)
    reserved = 300 * MIB
    assert executor_heap(10 * MIB, 1, 100 * MIB) - reserved == pytest.approx((70 + 100) * MIB / 0.8, abs=2)
    assert executor_heap(10 * MIB, 1, 10 * MIB) - reserved == pytest.approx(70 * MIB / 0.6, abs=2)


@pytest.mark.parametrize(("executor", "driver", "named"), [(1500, 4096, "executor_memory"), (4096, 1500, "driver.memory")])
def test_a_heap_that_is_too_small_with_a_codec_is_refused_with_both_remedies(executor: int, driver: int, named: str) -> None:
    elements = 100 * MIB // 4
    bounds = [0, elements, 2 * elements, 3 * elements]
    assert "model 300.0 MiB" in check_heaps(bounds, 1, executor * MIB, driver * MIB)
    with pytest.raises(ConfigError, match=named) as refusal:
        check_heaps(bounds, 1, executor * MIB, driver * MIB, kept_bytes=1000 * MIB)
    need = 300 + (700 + 1000) / 0.8 if named == "executor_memory" else 300 + (700 + 2 * 300) / 0.6
    assert f"needs {math.ceil(need)}m; raise it, or method.shards" in str(refusal.value)
    assert str(refusal.value).endswith('or leave cluster.codec = "none"')
    assert "codec" not in _refused(bounds)


def _refused(bounds: list[int]) -> str:
    """Without a codec the remedy does not name it."""
    with pytest.raises(ConfigError) as refusal:
        check_heaps(bounds, 1, 300 * MIB, 300 * MIB)
    return str(refusal.value)
