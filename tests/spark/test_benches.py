"""The benches that need executors, as small as they get: every key is there, and nothing is left."""

from __future__ import annotations

import pytest

from mpca.cli.bench.cases.exchange import SPARKS_CIPHER, measure
from mpca.cli.bench.cases.pause import measure as measure_pause
from mpca.cli.bench.cases.scale import measure as measure_scale
from mpca.cli.bench.cases.start import measure as measure_start
from mpca.cli.bench.figures import KEYS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(560)]


def test_exchange_on_loopback_has_every_key_and_says_that_it_counts_for_nothing() -> None:
    few = {"cycles": 9, "exchanges": 3, "small_cycles": 40, "jobs": 9}
    result = measure(agents=2, size_bytes=64 << 10, rate=None, encrypt=SPARKS_CIPHER, **few)
    assert set(KEYS) <= set(result)
    assert result["counts"] is False
    assert result["valid"] is False
    assert result["fixed_s"] > 0
    assert 0 < result["job_s"] < 10
    assert result["job_cpu_s"] > 0
    assert result["driver_held_over_m"] > 2  # joint model and trajectory
    assert result["overlap_share"] > 0


def test_pause_has_its_keys_for_the_smallest_net() -> None:
    result = measure_pause(("1MiB",), turns=1, warm_cycles=9)
    assert 0 < result["pause_share"] < 1
    assert result["steps_ratio"] > 0
    assert result["jvm_cpu_cores"] > 0
    (row,) = result["sizes"]
    assert row["cycles"] > 0


def test_start_forks_agents_sooner_than_it_starts_them() -> None:
    result = measure_start(agents=2, kills=1)
    assert 0 < result["warm_hello_s"] <= result["warm_update_s"] < result["fresh_update_s"]
    assert result["replacement_s"] > 0
    assert result["pss_bytes"] > 100 << 20  # torch alone is more


def test_scale_counts_what_a_few_executors_say() -> None:
    result = measure_scale((3, 6), cycles=8, real=3)
    few, more = result["sizes"]
    for row in (few, more):
        assert row["tasks"] == row["agents"]  # an order is one job
        # Closures travel in tasks: nobody asks for one, says that it has one, or is told that one is gone.
        assert row["messages_from_driver"] == row["tasks"]
        # A task runs, it has finished, an agent has its download; and progress, each half second. The 4 cycles that count may
        # begin or end amid the words of one download.
        more_words = row["messages_to_driver"] / row["agents"] - 3
        assert -1 / 4 <= more_words <= 2 / 4 + 2 * row["cycle_s"]
        assert 0 < row["cpu_s"] < 10
    # What the closure of an order has of an executor is the weight of its part.
    assert more["closure_bytes"] / 6 <= few["closure_bytes"] / 3 + 100
    real = result["real"]
    assert real["agents"] == 3
    assert 0 < real["cpu_beside_jobs_s"] < real["cpu_s"] < 10
    assert real["executors_cpu_s"] > 0
    assert 0 < real["agents_cpu_s"] < 3 * real["cycle_s"]
    assert real["cpu_over_answering"] > 0
    assert min(real["driver_descriptors"], real["executor_descriptors"]) > 200  # as mpca.spark.run.limits counts them
