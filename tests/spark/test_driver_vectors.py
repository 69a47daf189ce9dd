"""Vectors that lie in memory files, for the driver's JVM."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mpca.spark.jvm.driver_vectors import DriverVectors


@pytest.fixture
def vectors() -> Iterator[DriverVectors]:
    made = DriverVectors()
    yield made
    made.close()


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def address(vector: np.ndarray) -> int:
    found: int = vector.__array_interface__["data"][0]
    return found


def test_what_is_written_to_a_vector_lies_at_its_files_start_and_the_other_way_round(vectors: DriverVectors) -> None:
    vector = vectors.empty(1000)
    assert (vector.dtype, vector.shape) == (np.float32, (1000,))
    vector[:] = np.arange(1000)
    path = vectors.path_of(vector)
    assert Path(path).read_bytes()[:4000] == vector.tobytes()
    with open(path, "r+b") as other:
        other.write(np.full(1000, 2, np.float32).tobytes())
    assert vector.tolist() == [2.0] * 1000


def test_a_vector_of_ours_lies_where_it_is_and_its_first_elements_too(vectors: DriverVectors) -> None:
    vector = vectors.empty(1000)
    for one in (vector, vector[:999]):
        assert vectors.has(one)
        same, path = vectors.lying(one)
        assert same is one
        assert path == vectors.path_of(vector)


def test_any_other_is_copied(vectors: DriverVectors) -> None:
    ours = vectors.empty(100)
    ours[:] = np.arange(100)
    for other in (np.arange(5, dtype=np.float32), ours[3:], ours[::2], np.empty(0, np.float32)):
        assert not vectors.has(other)
        copy, path = vectors.lying(other)
        assert copy.tolist() == other.tolist()
        assert Path(path).read_bytes()[: copy.nbytes] == other.tobytes()
        assert address(copy) != address(ours)


def test_a_file_serves_the_next_vector_when_nothing_refers_to_the_last_one(vectors: DriverVectors) -> None:
    first = vectors.empty(5000)
    piece, at = first[:10], address(first)
    del first
    gc.collect()
    assert address(vectors.empty(5000)) != at, "its first elements are still in use"
    del piece
    gc.collect()
    before = descriptors()
    again = [vectors.empty(5000), vectors.empty(4990)]
    assert at in {address(one) for one in again}
    assert descriptors() == before, "both lie in files that were there"


def test_a_much_smaller_vector_takes_no_large_file(vectors: DriverVectors) -> None:
    large = vectors.empty(1 << 20)
    at = address(large)
    del large
    gc.collect()
    assert address(vectors.empty(1000)) != at


def test_files_that_fit_no_more_are_freed(vectors: DriverVectors) -> None:
    first = [vectors.empty(1 << 20) for _ in range(3)]
    del first
    gc.collect()
    with_two_that_wait = descriptors()
    second = [vectors.empty(1 << 16) for _ in range(2)]
    assert descriptors() == with_two_that_wait, "the model was cut anew"
    del second


def test_a_vector_outlives_close_and_its_file_goes_with_it() -> None:
    before = descriptors()
    vectors = DriverVectors()
    kept = vectors.empty(10)
    kept.fill(7)
    gone = vectors.empty(10)
    del gone
    vectors.close()
    vectors.close()
    assert kept.tolist() == [7.0] * 10
    assert not os.path.exists(vectors.path)
    del kept
    assert descriptors() == before


def test_memory_that_is_refused_is_an_error_and_leaves_no_descriptor(vectors: DriverVectors) -> None:
    before = descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            vectors.empty(1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert descriptors() == before
