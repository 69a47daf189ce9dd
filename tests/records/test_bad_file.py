"""The file of bad records: each once, in bounded number, whatever the disk does; what is not named is counted."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mpca.clock import ManualClock
from mpca.records import BadFile


def names(*records: str) -> list[list[str]]:
    return [[record, f"why {record}"] for record in records]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_each_record_is_named_once_with_who_met_it_first(tmp_path: Path) -> None:
    bad = BadFile(tmp_path / "bad.jsonl")
    assert bad.flush(at_once=True)
    assert not bad.path.exists(), "a run without bad records has no such file"
    bad.met(1.5, 3, 0, names("a", "é"), 0)
    bad.met(2.5, 1, 0, names("é", "b"), 0)
    assert bad.flush(at_once=True)
    assert lines(bad.path) == [
        {"record": "a", "reason": "why a", "agent": 3, "t": 1.5},
        {"record": "é", "reason": "why é", "agent": 3, "t": 1.5},
        {"record": "b", "reason": "why b", "agent": 1, "t": 2.5},
    ]
    assert bad.count == 3
    assert bad.path.stat().st_mode & 0o777 == 0o600


def test_what_is_beyond_the_limit_and_what_agents_could_not_name_is_counted(tmp_path: Path) -> None:
    bad = BadFile(tmp_path / "bad.jsonl", limit=2)
    bad.met(1.0, 0, 0, names("a", "b", "c", "d"), 0)
    for dropped in (5, 9, 9):  # totals of an incarnation
        bad.met(2.0, 0, 0, [], dropped)
    bad.met(3.0, 0, 1, names("a"), 4)  # its replacement begins anew
    bad.flush(at_once=True)
    assert [one.get("record") for one in lines(bad.path)] == ["a", "b", None]
    assert lines(bad.path)[-1] == {"unnamed": 2 + 9 + 4}
    assert bad.count == 2 + 2 + 9 + 4


def test_a_later_attempt_goes_on_with_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "bad.jsonl"
    first = BadFile(path, limit=3)
    first.met(1.0, 0, 0, names("a", "b"), 7)
    first.flush(at_once=True)
    with path.open("ab") as file:
        file.write(b'["torn\n')
    second = BadFile(path, limit=3)
    assert "a line that no run wrote is left out" in caplog.text
    assert second.flush(at_once=True), "nothing is new"
    second.met(9.0, 1, 0, names("b", "c", "d"), 0)
    second.flush(at_once=True)
    assert [one.get("record") for one in lines(path)] == ["a", "b", "c", None]
    assert second.count == 3 + 7 + 1


def test_it_is_written_at_most_once_in_five_seconds(tmp_path: Path) -> None:
    clock = ManualClock()
    bad = BadFile(tmp_path / "bad.jsonl", now=clock.now)
    bad.met(1.0, 0, 0, names("a"), 0)
    clock.advance(1.0)
    assert bad.flush()
    bad.met(1.0, 0, 0, names("b"), 0)
    clock.advance(4.9)
    assert not bad.flush()
    assert len(lines(bad.path)) == 1
    clock.advance(0.2)
    assert bad.flush()
    assert len(lines(bad.path)) == 2


def test_a_folder_that_takes_nothing_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    bad = BadFile(folder / "bad.jsonl")
    bad.met(1.0, 0, 0, names("a"), 0)
    bad.flush(at_once=True)
    shutil.rmtree(folder)
    bad.met(2.0, 0, 0, names("b"), 0)
    for _ in range(2):
        assert not bad.flush(at_once=True)
    assert bad.error is not None
    assert bad.error.errno == errno.ENOENT
    assert caplog.text.count("bad records cannot be written;") == 1, "it is said once"
    folder.mkdir()
    assert bad.flush(at_once=True)
    assert [one["record"] for one in lines(bad.path)] == ["a", "b"]
