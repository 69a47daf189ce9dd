"""Records are read as they come: from a file that grows, from parts, and again when other bytes took their place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mpca.errors import ConfigError
from mpca.report.follow import Follower
from mpca.storage.local import LocalStore
from mpca.storage.parts import PartWriter
from tests.report.synthetic import synthetic_records
from tests.support.memory_store import MemoryStore

LINES = [json.dumps(one).encode() + b"\n" for one in synthetic_records(cycles=20)]


def grow(path: Path, *lines: bytes) -> None:
    with path.open("ab") as file:
        file.writelines(lines)


def test_a_folder_that_comes_later_and_a_file_that_grows_by_halves_of_lines(tmp_path: Path) -> None:
    follower = Follower(LocalStore(tmp_path / "run"))
    assert not follower.look()
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "records.jsonl"
    grow(path, *LINES[:3], LINES[3][:10])
    assert (follower.look(), len(follower.records)) == (True, 3)
    assert not follower.look(), "half a line is none"
    grow(path, LINES[3][10:])
    assert (follower.look(), len(follower.records)) == (True, 4)
    grow(path, *LINES[4:])
    follower.look()
    assert [one.t for one in follower.records] == [json.loads(one)["t"] for one in LINES]


def test_another_run_in_the_same_place_is_read_from_its_beginning(tmp_path: Path) -> None:
    follower = Follower(LocalStore(tmp_path))
    grow(tmp_path / "records.jsonl", *LINES[:5])
    follower.look()
    (tmp_path / "records.jsonl").unlink()
    assert (follower.look(), follower.records) == (True, [])
    grow(tmp_path / "records.jsonl", LINES[0], *LINES[6:9])
    assert follower.look()
    assert [one.t for one in follower.records] == [json.loads(one)["t"] for one in (LINES[0], *LINES[6:9])]


def test_parts_are_followed_while_they_are_merged_and_become_one_file(tmp_path: Path) -> None:
    local, store = tmp_path / "records.jsonl", MemoryStore()
    writer, follower = PartWriter(store, local, term=1, start=0), Follower(store)
    for number, line in enumerate(LINES[:40]):
        grow(local, line)
        writer.flush()
        if number % 3 == 0:
            assert follower.look()
            assert len(follower.records) == number + 1
    writer.finish(LINES[40])
    assert follower.look()
    assert [one.t for one in follower.records] == [json.loads(one)["t"] for one in LINES[:41]]


def test_bytes_of_an_attempt_that_was_replaced_are_read_again(tmp_path: Path) -> None:
    store, follower = MemoryStore(), None
    first, second = tmp_path / "first", tmp_path / "second"
    grow(first, *LINES[:3])
    writer = PartWriter(store, first, term=1, start=0)
    writer.flush()
    grow(first, *LINES[3:6])
    writer.flush()
    follower = Follower(store)
    follower.look()
    grow(second, *LINES[:3], *LINES[7:12])
    PartWriter(store, second, term=2, start=sum(map(len, LINES[:3]))).flush()
    assert follower.look()
    assert [one.t for one in follower.records] == [json.loads(one)["t"] for one in (*LINES[:3], *LINES[7:12])]


def test_what_is_no_record_is_told_with_its_line_and_another_format_by_its_number(tmp_path: Path) -> None:
    grow(tmp_path / "records.jsonl", LINES[0], b"[]\n")
    with pytest.raises(ConfigError, match=r"^damaged run folder: not a record: path=.*records\.jsonl, line=2: it is not a map"):
        Follower(LocalStore(tmp_path)).look()
    store = MemoryStore()
    store.write("records.jsonl", json.dumps(synthetic_records()[0] | {"format": 2}).encode() + b"\n")
    with pytest.raises(ConfigError, match=r"format 2, this mpca reads 1"):
        Follower(store).look()
