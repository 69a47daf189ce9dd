"""What survives a kill, and what is not mixed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import mpca
from mpca.errors import ConfigError
from mpca.sim.compare.journal import Journal, written_by
from mpca.sim.compare.plan import Plan
from mpca.sim.compare.settings import Conf, Entry, Shared
from mpca.sim.compare.unit import Unit
from tests.sim.compare.support import fake

CONF = Conf(Shared(points=3), (Entry("single", "single"), Entry("sync", "sync", tune={"tau": (5, 10, 20)})))


def units() -> list[Unit]:
    return list(Plan(CONF).look({}).missing.values())


def filled(folder: Path, count: int) -> Path:
    with Journal(folder) as journal:
        for unit in units()[:count]:
            journal.add(unit, fake(lambda unit, rate, seed: rate)(unit))
        return journal.path


def test_what_was_added_is_read_again(tmp_path: Path) -> None:
    filled(tmp_path / "run", 3)
    with Journal(tmp_path / "run") as journal:
        assert list(journal.done) == [unit.key for unit in units()[:3]]
        assert journal.done == {unit.key: fake(lambda unit, rate, seed: rate)(unit) for unit in units()[:3]}
        assert journal.dropped == ""


@pytest.mark.parametrize("lost", [1, 5, 100])
def test_a_last_line_that_was_cut_off_is_dropped_with_a_word(tmp_path: Path, lost: int) -> None:
    path = filled(tmp_path, 3)
    path.write_bytes(path.read_bytes()[:-lost])
    with Journal(tmp_path) as journal:
        assert len(journal.done) == 2
        assert "cut off" in journal.dropped
        journal.add(units()[2], [])
    with Journal(tmp_path) as journal:
        assert (len(journal.done), journal.dropped) == (3, "")


def test_a_last_line_of_nonsense_is_dropped(tmp_path: Path) -> None:
    path = filled(tmp_path, 1)
    path.write_bytes(path.read_bytes() + b"\0\0\0\n")
    with Journal(tmp_path) as journal:
        assert (len(journal.done), "cut off" in journal.dropped) == (1, True)


def test_a_head_that_was_cut_off_is_written_again(tmp_path: Path) -> None:
    path = filled(tmp_path, 0)
    path.write_bytes(path.read_bytes()[:9])
    with Journal(tmp_path):
        pass
    assert json.loads(path.read_text())["format"] == 1


def test_damage_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join((*lines[:2], b"{\n", *lines[3:])))
    with pytest.raises(ConfigError, match="line 3 is damaged"):
        Journal(tmp_path)


def test_results_of_other_code_are_refused(tmp_path: Path) -> None:
    path = filled(tmp_path, 1)
    head, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join((json.dumps({**json.loads(head), "code": "0123"}) + "\n", *rest)))
    with pytest.raises(ConfigError, match=r"results of other code \(code 0123, now .*--run-dir"):
        Journal(tmp_path)


def test_results_of_another_format_are_refused(tmp_path: Path) -> None:
    path = filled(tmp_path, 0)
    path.write_text('{"format":2}\n{}\n')
    with pytest.raises(ConfigError, match="has format 2, this mpca reads 1"):
        Journal(tmp_path)


def test_a_file_of_something_else_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text("[1]\n[2]\n")
    with pytest.raises(ConfigError, match=r"is no file of mpca compare: .*--run-dir"):
        Journal(tmp_path)
    assert path.read_text() == "[1]\n[2]\n"


@pytest.mark.parametrize(
    ("changed", "other"),
    [
        ("sim/compare/unit.py", True),
        ("sim/compare/settings.py", True),
        ("sim/transports.py", True),
        ("methods/sync.py", True),
        ("sim/compare/fairness.py", False),
        ("sim/compare/result.py", False),
        ("report/comparison.py", False),
    ],
)
def test_results_are_of_other_code_when_what_simulates_has_changed(tmp_path: Path, changed: str, other: bool) -> None:
    copy = tmp_path / "mpca"
    shutil.copytree(Path(mpca.__file__).parent, copy, ignore=shutil.ignore_patterns("*.jar", "__pycache__"))
    assert written_by(copy) == written_by()
    with open(copy / changed, "a") as file:
        file.write("\n")
    assert (written_by(copy) != written_by()) is other


@pytest.mark.parametrize("folder", ["file", "file/below", "full"])
def test_a_folder_that_cannot_be_made_is_refused_in_one_sentence(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "full" / "results.jsonl").mkdir(parents=True)
    with pytest.raises(ConfigError, match=rf"--run-dir = '.*{folder}': cannot be written: .*; choose another one"):
        Journal(tmp_path / folder)


def test_one_process_at_a_time_holds_a_folder(tmp_path: Path) -> None:
    with Journal(tmp_path), pytest.raises(ConfigError, match="another mpca compare writes"):
        Journal(tmp_path)
    Journal(tmp_path).close()
