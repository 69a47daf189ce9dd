"""One session for all tests here that do not need one of their own, and what a test may leave in it: nothing."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpca.spark.run.session import session
from tests.spark.engine import Told, run_engine
from tests.spark.support import HandDriver, alive, java_pids

MIB = 1 << 20
#: Threads of ours that live as long as their JVM, or linger for a minute in a pool.
LASTING = (
    "mpca-spawner",
    "mpca-parent",  # a minute: the next run of the session finds torch imported
    "mpca-sweeper",
    "mpca-remove",
    "mpca-download",
    "mpca-clock",
    "mpca-verify",
    "mpca-fetch",
    "mpca-relay",
    "mpca-push",
    "mpca-freeze",
    "mpca-snapshots",
    "mpca-exchanges",
)
_runs = itertools.count(1)


@pytest.fixture(scope="package")
def work_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("session")


@pytest.fixture(scope="package")
def spark(work_dir: Path) -> Iterator[object]:
    """Three executors with room for two agents each."""
    with session(work_dir, executors=3, agents_per_executor=2, executor_memory=700 * MIB, driver_memory=700 * MIB) as spark:
        yield spark
    assert list(work_dir.iterdir()) == [], "the session left files behind"


@pytest.fixture
def drive(spark, work_dir: Path) -> Iterator[Callable[..., HandDriver]]:
    """Makes drivers by hand over the shared session; afterwards nothing of theirs may be left."""
    drivers = []

    def make(**options) -> HandDriver:
        drivers.append(HandDriver(spark, f"t{next(_runs)}", **options))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.cluster.close()
    pids = [pid for driver in drivers for pid in driver.all_pids()]
    with HandDriver(spark, f"t{next(_runs)}") as probe:
        probe.executors(3)  # replacements included, before the next test
        left = _left(probe, pids)
        until = time.monotonic() + 10
        while left and time.monotonic() < until:
            time.sleep(0.2)
            left = _left(probe, pids)
    assert not left, left
    assert len(java_pids(work_dir)) == 3


@pytest.fixture
def engine(drive, spark, work_dir: Path, tmp_path: Path) -> Callable[..., Told]:
    """Whole runs through `launch` over the shared session, each in a folder of its own unless one is named."""
    return lambda train, *args, run_dir=None, **options: run_engine(
        spark, work_dir, run_dir or tmp_path / f"run{next(_runs)}", train, *args, **options
    )


def _left(probe: HandDriver, pids: list[int]) -> list[str]:
    left = [f"agent process {pid}" for pid in pids if alive(pid)]
    for place in probe.cluster.inventory():
        left += [f"block {name} on {place['executor']}" for name in place["blocks"]]
        if place["executor"] != "driver":
            left += [f"thread {name} on {place['executor']}" for name in place["threads"] if not name.startswith(LASTING)]
    return left
