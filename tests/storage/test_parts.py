"""Records on storage that cannot append: whatever a killed writer leaves, the lines that were flushed are there, once."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from mpca.storage import PartWriter, joined
from tests.support.memory_store import Crash, MemoryStore


def grow(path: Path, first: int, count: int) -> None:
    with path.open("ab") as file:
        file.writelines(b'{"n": %d}\n' % number for number in range(first, first + count))


def lines(first: int, count: int) -> bytes:
    return b"".join(b'{"n": %d}\n' % number for number in range(first, first + count))


def test_parts_are_few_and_give_the_whole_file(tmp_path: Path) -> None:
    path, store = tmp_path / "records.jsonl", MemoryStore()
    path.touch()
    writer = PartWriter(store, path, 1, 0)
    for number in range(300):
        grow(path, number, 1)
        writer.flush()
    assert joined(store) == lines(0, 300)
    assert len(store.paths()) <= 1 + 2 + 15  # 256, 2 x 16, 12
    writer.finish()
    assert store.paths() == ["records.jsonl"]
    assert joined(store) == store.read("records.jsonl") == lines(0, 300)


def test_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    path, store = tmp_path / "records.jsonl", MemoryStore()
    path.write_bytes(b"whole\nhal")
    writer = PartWriter(store, path, 1, 0)
    writer.flush()
    writer.flush()
    assert joined(store) == b"whole\n"
    with path.open("ab") as file:
        file.write(b"f\nth")
    writer.flush()
    assert joined(store) == b"whole\nhalf\n"


def test_a_hole_is_said_and_nothing_beyond_it_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, store = tmp_path / "records.jsonl", MemoryStore()
    grow(path, 0, 3)
    PartWriter(store, path, 1, len(lines(0, 1))).flush()
    assert joined(store) == b""
    assert "records are missing from byte 0 on" in caplog.text


def test_a_later_attempt_goes_on_where_the_lines_end_and_a_replaced_one_does_not_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, first, second = MemoryStore(), tmp_path / "first", tmp_path / "second"
    first.touch()
    earlier = PartWriter(store, first, 1, 0)
    grow(first, 0, 10)
    earlier.flush()
    second.write_bytes(joined(store))
    later = PartWriter(store, second, 2, second.stat().st_size)
    grow(first, 90, 7)  # it has not noticed
    grow(second, 10, 5)
    later.flush()
    earlier.flush()
    grow(second, 15, 5)
    later.flush()
    assert joined(store) == lines(0, 20)
    later.finish()
    assert joined(store) == lines(0, 20)


@pytest.mark.parametrize("fault", ["crash", "torn", "full", "lost"])
def test_no_flushed_line_is_lost_wherever_the_writer_fails(tmp_path: Path, fault: str) -> None:
    """Two attempts; the first fails at each of its operations in turn, the second ends in order."""
    for operation in range(1000):
        store = MemoryStore({operation: fault})
        first, second = tmp_path / f"{operation}-1", tmp_path / f"{operation}-2"
        first.touch()
        writer, flushed = PartWriter(store, first, 1, 0), 0
        with contextlib.suppress(Crash):
            for number in range(0, 36, 2):
                grow(first, number, 2)
                with contextlib.suppress(OSError):
                    writer.flush()
                    flushed = number + 2
            with contextlib.suppress(OSError):
                writer.finish()
        store.reboot()
        found = joined(store)
        kept = found.count(b"\n")
        assert found == lines(0, kept)
        assert kept >= flushed, (operation, store.fired)
        second.write_bytes(found)
        later = PartWriter(store, second, 2, len(found))
        grow(second, kept, 40 - kept)
        later.flush()
        assert joined(store) == lines(0, 40), (operation, store.fired)
        later.finish()
        assert store.paths() == ["records.jsonl"]
        assert joined(store) == lines(0, 40)
        if not store.fired:
            break
    assert operation > 20
