"""Records that the disk does not take: kept in order, bounded, written once there is room; what is dropped is counted."""

from __future__ import annotations

import errno
import json
import logging
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mpca.clock import ManualClock
from mpca.records import Backlog, EndRecord, GapRecord, LineWriter, Record, read_records


def record(n: int) -> Record:
    return EndRecord(float(n), "reached", f"{n:0100d}")


SIZE = len(json.dumps({"kind": "end", "t": 1.0, "status": "reached", "reason": "0" * 100})) + 1


class Disk:
    """Takes lines, or fails as it is told to."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.fault = 0
        self.asked = 0

    def append(self, line: bytes) -> None:
        self.asked += 1
        if self.fault:
            raise OSError(self.fault, os.strerror(self.fault))
        self.lines.append(line)

    def close(self) -> None:
        pass

    @property
    def numbers(self) -> list[int]:
        return [int(json.loads(line)["t"]) for line in self.lines]


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT, errno.ESTALE])
def test_they_are_written_in_order_when_the_disk_takes_them_again(fault: int, caplog: pytest.LogCaptureFixture) -> None:
    disk, clock = Disk(), ManualClock()
    backlog = Backlog(disk, now=clock.now)
    for n in range(10):
        disk.fault = fault if 3 <= n < 8 else 0
        backlog.write(record(n))
        clock.advance(2.0)
        assert disk.numbers == list(range(3 if 3 <= n < 8 else n + 1))
    assert backlog.waiting == b""
    assert [one.levelno for one in caplog.records] == [logging.WARNING], "one warning, however often it is tried"
    assert os.strerror(fault) in caplog.text


def test_a_disk_that_fails_is_asked_once_a_second() -> None:
    disk, clock = Disk(), ManualClock()
    backlog = Backlog(disk, now=clock.now)
    disk.fault = errno.EIO
    for n in range(100):
        backlog.write(record(n))
        clock.advance(0.1)
    assert 10 <= disk.asked <= 11
    disk.fault = 0
    assert backlog.flush()
    assert disk.numbers == list(range(100))


def test_what_the_memory_does_not_hold_is_dropped_oldest_first_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    disk, clock = Disk(), ManualClock()
    backlog = Backlog(disk, limit_bytes=4 * SIZE + 10, now=clock.now)
    backlog.write(record(0))
    disk.fault = errno.ENOSPC
    for n in range(1, 10):
        backlog.write(record(n))
        clock.advance(2.0)
        assert len(backlog.waiting) <= 5 * SIZE + 200
    assert not backlog.flush()
    disk.fault = 0
    assert backlog.flush()
    assert backlog.waiting == b""
    gap = json.loads(disk.lines[1])
    assert (gap["kind"], gap["count"], gap["start"], gap["end"]) == ("gap", 5, 1.0, 5.0)
    assert disk.numbers == [0, 5, 6, 7, 8, 9], "nothing is missing but what the gap says"
    assert sum("dropped" in one.message for one in caplog.records) == 1


def test_what_waits_at_the_end_can_be_kept_elsewhere(tmp_path: Path) -> None:
    disk = Disk()
    backlog = Backlog(disk, limit_bytes=2 * SIZE)
    disk.fault = errno.ENOSPC
    for n in range(4):
        backlog.write(record(n))
    path = tmp_path / "records.jsonl"
    path.write_bytes(backlog.waiting)
    gap, *kept = read_records(path).records
    assert isinstance(gap, GapRecord)
    assert (gap.count, [one.t for one in kept]) == (2, [2.0, 3.0])


# ---- on real files -----------------------------------------------------------------------------------------------------


@contextmanager
def full_at(size: int) -> Iterator[None]:
    """No file grows beyond so many bytes: the kernel writes what fits and refuses the rest, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", [0, 1, 50, SIZE - 1, SIZE, SIZE + 7])
def test_no_half_line_stays_wherever_the_disk_is_full(tmp_path: Path, room: int) -> None:
    path = tmp_path / "records.jsonl"
    backlog = Backlog(LineWriter(path))
    backlog.write(record(0))
    with full_at(path.stat().st_size + room):
        for n in (1, 2, 3):
            backlog.write(record(n))
        file = read_records(path)
        assert (file.torn, [one.t for one in file.records]) == (None, [0.0, 1.0][: 1 + room // SIZE])
    assert backlog.flush()
    assert read_records(path).records == [record(n) for n in range(4)]
    backlog.close()


def test_a_half_line_that_could_not_be_taken_back_is_gone_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    writer = LineWriter(path)
    writer.write(record(0))
    with path.open("ab") as file:
        file.write(b'{"kind": "en')  # as a write leaves it that fails, on a disk that takes no truncation either
    writer.write(record(1))
    writer.close()
    assert read_records(path).records == [record(0), record(1)]


@pytest.mark.parametrize("gone", ["removed", "replaced"])
def test_a_folder_that_is_removed_takes_no_records_and_is_not_made_again(tmp_path: Path, gone: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    backlog = Backlog(LineWriter(folder / "records.jsonl"))
    backlog.write(record(0))
    shutil.rmtree(folder)
    if gone == "replaced":
        folder.mkdir()
        (folder / "records.jsonl").write_text("another run's")
    backlog.write(record(1))
    assert not backlog.flush()
    assert isinstance(backlog.error, FileNotFoundError)
    assert backlog.waiting.count(b"\n") == 1
    assert folder.exists() == (gone == "replaced")
    if gone == "replaced":
        assert (folder / "records.jsonl").read_text() == "another run's"
    backlog.close()
