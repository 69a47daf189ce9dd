from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpca.data.cache import RecordCache


def test_the_oldest_give_way_and_the_limit_is_kept(tmp_path: Path) -> None:
    with RecordCache(100, tmp_path) as cache:
        for number in range(25):
            cache.put(number, bytes([number]) * 30)
            assert cache.held_bytes <= 100
            assert cache.get(number) == bytes([number]) * 30
        assert [number for number in range(25) if cache.get(number) is not None] == [22, 23, 24]
        assert os.listdir(tmp_path) == [], "it has no name, so nothing can be left behind"


def test_pieces_of_any_length_are_whole_or_gone(tmp_path: Path) -> None:
    with RecordCache(1000, tmp_path) as cache:
        put = {number: os.urandom(1 + (number * 137) % 400) for number in range(200)}
        for number, data in put.items():
            cache.put(number, data)
            for other in range(number + 1):
                assert cache.get(other) in (None, put[other])
            assert cache.get(number) == data


def test_a_damaged_piece_is_forgotten(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RecordCache(100, tmp_path) as cache:
        cache.put(7, b"0123456789")
        (fd,) = [n for n in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{n}").startswith(str(tmp_path))]
        os.pwrite(int(fd), b"x", 4)
        assert cache.get(7) is None
        assert "damaged and read again: piece=7" in caplog.text
        cache.put(7, b"0123456789")
        assert cache.get(7) == b"0123456789"


def test_a_piece_that_is_too_large_and_a_limit_of_nothing_keep_nothing(tmp_path: Path) -> None:
    with RecordCache(10, tmp_path) as cache, RecordCache(0, tmp_path) as none:
        for one in (cache, none):
            one.put(1, bytes(11))
            assert one.get(1) is None
        assert (cache.misses, none.misses, cache.hits) == (1, 1, 0)
