"""Wall clocks that differ by minutes, and are set in mid-run, on real processes under libfaketime: the run does not notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.support import ROOT
from tests.support.fake_executor import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.quiet, pytest.mark.timeout(300)]

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
#: An hour back by the driver, ten minutes both ways by executors, while the run goes on. libfaketime looks at its files once a
#: second, and the end of the run must see the last step.
STEPS = {"8": {"executors": "-600"}, "20": {"driver": "-3600"}, "32": {"executors": "+600", "driver": "-45"}}


#: Sets the clocks, has a process under them, and is killed, as that one is.
KILLED = """
import subprocess, sys
from pathlib import Path
from tests.spark.skewed import Clocks
clocks = Clocks(Path(sys.argv[1]), sys.argv[2], {"driver": "-45"})
subprocess.run(["sh", "-c", "kill -9 $$"])
print("set", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run that began with the driver 45 s behind and its executors 600 s ahead."""
    assert LIBRARY is not None, "libfaketime is missing: install Debian's faketime (.ci/run does it as root)"
    work_dir = tmp_path_factory.mktemp("skewed")
    offsets = {"driver": "-45", "executors": "+600"}
    command = [sys.executable, "-m", "tests.spark.skewed", str(work_dir), str(LIBRARY), json.dumps(offsets), json.dumps(STEPS)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    before = shared()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    return {**json.loads(done.stdout.splitlines()[-1]), "left": sorted(shared() - before)}


def shared() -> set[str]:
    """What libfaketime has in shared memory."""
    return {name for name in os.listdir("/dev/shm") if "faketime" in name}


def test_the_clocks_were_really_off(told) -> None:
    assert told["made"] == 4
    assert told["driver_off"] == pytest.approx(-45, abs=5)
    assert list(told["agents_off"].values()) == [pytest.approx(600, abs=30)] * 2


def test_libfaketime_leaves_nothing_in_shared_memory(told) -> None:
    assert told["left"] == []


def test_nor_when_the_process_that_sets_the_clocks_is_killed(tmp_path: Path) -> None:
    assert LIBRARY is not None
    before = shared()
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), str(LIBRARY)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "set\n"
        assert len(shared() - before) == 2, "one pair for all that run under wrong clocks"
        process.kill()
        wait_until(lambda: shared() <= before, "shared memory as before")


def test_everybody_contributes_to_every_cycle(told) -> None:
    assert told["status"] == "max_cycles", told["reason"]
    assert [list(one["contributors"]) for one in told["cycles"]] == [["0", "1"]] * len(told["cycles"])
    assert all(one["left_out"] == {} and one["submissions"] == 1 for one in told["cycles"])


def test_times_in_the_ledger_are_of_one_clock(told) -> None:
    """In order, within the run, and of the length that they had."""
    for one in told["cycles"]:
        for stage in one["stages"].values():
            assert 0 <= stage["start"] <= stage["end"] <= one["t"] + 0.1
            assert stage["end"] - stage["start"] < 30
        for start, end in one["pauses"].values():
            assert 0 <= start <= end <= one["t"] + 0.1
            assert end - start < 10
