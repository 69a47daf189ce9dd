"""`mpca bench data` as a person calls it, as small as it gets."""

from __future__ import annotations

import pytest

from tests.bench.test_cases import bench


@pytest.mark.slow
def test_data_tells_the_ratios_and_what_they_are_of() -> None:
    result = bench("data", "--images", "80", "--turns", "1")
    assert result["stream_ratio"] == pytest.approx(result["stream_images_s"] / result["memory_images_s"])
    assert result["imagefolder_ratio"] == pytest.approx(result["stream_images_s"] / result["imagefolder_images_s"])
    assert 0 < result["stream_ratio"] < 2
    assert result["data_bytes"] > 80 * 5000
    assert result["peak_bytes"] > 0
    assert 0 < result["first_batch_ms"] < 60_000
