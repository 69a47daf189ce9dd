"""The memory file in which pieces of files pass between the driver's Python and its JVM."""

from __future__ import annotations

import os

import pytest

from mpca.spark.jvm.driver_segment import DriverSegment


def test_what_is_written_is_read() -> None:
    segment = DriverSegment()
    piece = bytes(range(200)) * 200
    assert segment.write(memoryview(piece)) == 40_000
    assert segment.read(40_000) == piece
    assert segment.read(3) == b"\0\1\2"
    segment.close()


def test_it_is_the_same_file_for_whoever_opens_its_path() -> None:
    segment = DriverSegment()
    segment.write(memoryview(b"to the JVM"))
    with open(segment.path, "r+b") as other:
        assert other.read() == b"to the JVM"
        other.seek(0)
        other.write(b"from a JVM")
    assert segment.read(10) == b"from a JVM"
    segment.close()


def test_an_empty_piece_passes() -> None:
    segment = DriverSegment()
    assert segment.write(memoryview(b"")) == 0
    assert segment.read(0) == b""
    segment.close()


def test_reading_beyond_its_end_is_an_error() -> None:
    segment = DriverSegment()
    with pytest.raises(OSError, match="shorter than the piece: bytes=0, expected=4"):
        segment.read(4)
    segment.close()


def test_it_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    segment = DriverSegment()
    segment.close()
    segment.close()
    assert len(os.listdir("/proc/self/fd")) == before
