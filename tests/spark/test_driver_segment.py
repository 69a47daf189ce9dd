"""The memory file between the driver's Python and its JVM."""

from __future__ import annotations

import os

import numpy as np
import pytest

from mpca.spark.jvm.driver_segment import DriverSegment


def test_what_is_written_is_read() -> None:
    segment = DriverSegment()
    vector = np.arange(10_000, dtype=np.float32)
    assert segment.write(vector) == 40_000
    assert segment.read(40_000).tobytes() == vector.tobytes()
    assert segment.read(8).tolist() == [0.0, 1.0]
    segment.close()


def test_it_is_the_same_file_for_whoever_opens_its_path() -> None:
    segment = DriverSegment()
    segment.write(np.ones(4, dtype=np.float32))
    with open(segment.path, "r+b") as other:
        assert other.read() == np.ones(4, dtype=np.float32).tobytes()
        other.seek(0)
        other.write(np.full(4, 2, dtype=np.float32).tobytes())
    assert segment.read(16).tolist() == [2.0] * 4
    segment.close()


def test_an_empty_shard_passes() -> None:
    segment = DriverSegment()
    assert segment.write(np.empty(0, dtype=np.float32)) == 0
    assert segment.read(0).size == 0
    segment.close()


def test_reading_beyond_its_end_is_an_error() -> None:
    segment = DriverSegment()
    with pytest.raises(OSError, match="shorter than the vector: bytes=0, expected=4"):
        segment.read(4)
    segment.close()


def test_it_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    segment = DriverSegment()
    segment.close()
    segment.close()
    assert len(os.listdir("/proc/self/fd")) == before
