"""`mpca bench data` as a person calls it, as small as it gets."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mpca.environment import child_environment
from tests.bench.test_cases import bench
from tests.support.fake_executor import wait_until


@pytest.mark.slow
def test_data_tells_the_ratios_and_what_they_are_of() -> None:
    result = bench("data", "--images", "80", "--turns", "1")
    assert result["stream_ratio"] == pytest.approx(result["stream_images_s"] / result["memory_images_s"])
    assert result["imagefolder_ratio"] == pytest.approx(result["stream_images_s"] / result["imagefolder_images_s"])
    assert result["stream_ratio"] > 0
    assert result["data_bytes"] > 80 * 5000
    assert result["peak_bytes"] > 0
    assert 0 < result["first_batch_ms"] < 60_000


@pytest.mark.slow
def test_a_case_that_is_ended_from_outside_leaves_no_files(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "mpca.cli", "bench", "data", "--images", "2000"],
        env=child_environment(TMPDIR=str(tmp_path)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: bool(list(tmp_path.glob("mpca-bench-*/*"))), "its first file")
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 143
    finally:
        running.kill()
        running.wait()
    assert list(tmp_path.iterdir()) == []
