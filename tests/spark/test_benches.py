"""The benches that need executors, as small as they get: every key is there, and nothing is left."""

from __future__ import annotations

import pytest

from mpca.cli.bench.cases.exchange import measure
from mpca.cli.bench.cases.pause import measure as measure_pause
from mpca.cli.bench.figures import KEYS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(560)]


def test_exchange_on_loopback_has_every_key_and_says_that_it_counts_for_nothing() -> None:
    result = measure(agents=2, size_bytes=64 << 10, rate=None, cycles=6, exchanges=3, encrypt=True)
    assert set(KEYS) <= set(result)
    assert result["counts"] is False
    assert result["valid"] is False
    assert result["fixed_s"] > 0
    assert result["overlap_share"] > 0


def test_pause_has_its_keys_for_the_smallest_net() -> None:
    result = measure_pause(("1MiB",), turns=1)
    assert 0 < result["pause_share"] < 1
    assert result["steps_ratio"] > 0
    assert result["jvm_cpu_cores"] > 0
    (row,) = result["sizes"]
    assert row["cycles"] > 0
