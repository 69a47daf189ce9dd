"""Backups with agents' own states: executors write the files, and a backup is whole with all of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpca.errors import BackupError
from mpca.storage import Backups, LocalStore, agent_file, hidden_folder
from mpca.storage import manifest as form
from tests.storage.test_backup import backups, same, state


def with_agents(one: Backups, folder: Path, cycle: int, agents: int = 2, term: int = 1) -> Any:
    """A state, whose files executors have written."""
    one.expect(term, cycle)
    hidden = folder / "run" / "backups" / hidden_folder(term, cycle)
    hidden.mkdir(parents=True)
    rows = {}
    for agent in range(agents):
        data = bytes([agent]) * (1000 + agent)
        (hidden / agent_file(agent, 0)).write_bytes(data)
        sha = hashlib.sha256(data).hexdigest()
        rows[str(agent)] = {"file": agent_file(agent, 0), "bytes": len(data), "sha256": sha}
    return state(cycle, term, agents=rows)


@pytest.fixture
def one(tmp_path: Path) -> Backups:
    return backups(LocalStore(tmp_path))


def test_their_files_become_visible_with_the_backup(one: Backups, tmp_path: Path) -> None:
    written = with_agents(one, tmp_path, 4)
    info = one.write(written)
    folder = Path(info.path)
    assert {path.name for path in folder.glob("agent-*")} == {"agent-00000-0.pt", "agent-00001-0.pt"}
    assert info.size_bytes == sum(path.stat().st_size for path in folder.iterdir() if path.name != "manifest.json")
    held = one.read(info.name)
    assert same(held, written)
    assert held.agents == written.agents
    assert [path.name for path in folder.parent.iterdir()] == [info.name], "nothing hidden is left"


def test_a_backup_without_them_says_nothing_of_agents(one: Backups) -> None:
    info = one.write(state(4))
    assert "agents" not in one.manifest(info.name)
    assert one.read(info.name).agents == {}


@pytest.mark.parametrize("fault", ["missing", "short"])
def test_a_file_that_is_not_there_whole_fails_the_backup_and_leaves_nothing(one: Backups, tmp_path: Path, fault: str) -> None:
    older = one.write(state(3))
    written = with_agents(one, tmp_path, 4)
    path = tmp_path / "run" / "backups" / hidden_folder(1, 4) / "agent-00001-0.pt"
    if fault == "missing":
        path.unlink()
    else:
        path.write_bytes(b"less")
    with pytest.raises(BackupError, match=r"^backup not written: .*agent-00001-0\.pt"):
        one.write(written)
    assert [path.name for path in (tmp_path / "run" / "backups").iterdir()] == [older.name]


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "has 1000 bytes instead of 1001"),
        (lambda path: path.write_bytes(b"x" + path.read_bytes()[1:]), "does not match its sha256"),
        (lambda path: path.unlink(), "agent-00001-0.pt is missing"),
    ],
)
def test_a_damaged_file_of_an_agent_is_found_and_an_older_backup_taken(
    one: Backups, tmp_path: Path, damage: Callable[[Path], None], what: str
) -> None:
    older = one.write(with_agents(one, tmp_path, 3))
    newer = one.write(with_agents(one, tmp_path, 4))
    damage(Path(newer.path) / "agent-00001-0.pt")
    found = one.newest()
    assert found.info.name == older.name
    assert len(found.passed_over) == 1
    assert what in found.passed_over[0]


def test_files_that_executors_have_written_survive_the_removal_of_what_killed_writers_left(
    tmp_path: Path, one: Backups
) -> None:
    killed = tmp_path / "run" / "backups" / hidden_folder(1, 2)
    killed.mkdir(parents=True)
    (killed / "agent-00000-0.pt").write_bytes(b"half")
    one.write(with_agents(one, tmp_path, 4))
    assert not killed.exists()


def test_files_that_executors_write_for_a_later_backup_stay(tmp_path: Path, one: Backups) -> None:
    """The order that stops a run saves agents while the backup before is still being written."""
    later = with_agents(one, tmp_path, 5)
    one.write(state(4))
    info = one.write(later)
    assert set(one.read(info.name).agents) == {"0", "1"}


def test_files_that_came_too_late_or_not_all_are_in_no_backup(tmp_path: Path, one: Backups) -> None:
    info = one.write(replace(with_agents(one, tmp_path, 5), agents={}))
    assert [path.name for path in Path(info.path).glob("agent-*")] == []


def test_old_backups_are_removed_with_their_files(tmp_path: Path) -> None:
    one = backups(LocalStore(tmp_path), keep=1)
    for cycle in (3, 4):
        one.write(with_agents(one, tmp_path, cycle))
    assert [info.cycle for info in one.found()] == [4]
    assert len(list((tmp_path / "run" / "backups").iterdir())) == 1


GOOD = {"file": "agent-00000-0.pt", "bytes": 3, "sha256": "ab" * 32}


@pytest.mark.parametrize(
    "agents",
    [
        {},
        [],
        {"x": GOOD},
        {"01": GOOD},
        {"0": None},
        {"0": {**GOOD, "file": "../model.safetensors"}},
        {"0": {**GOOD, "file": 3}},
        {"0": {**GOOD, "bytes": -1}},
        {"0": {**GOOD, "sha256": "ab"}},
    ],
)
def test_a_manifest_that_names_impossible_files_is_refused(one: Backups, tmp_path: Path, agents: Any) -> None:
    info = one.write(with_agents(one, tmp_path, 4))
    path = Path(info.path) / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    manifest["agents"] = agents
    manifest["sha256"] = hashlib.sha256(form._canonical(manifest)).hexdigest()
    path.write_text(json.dumps(manifest))
    with pytest.raises(BackupError, match=r"manifest\.json: agents"):
        one.read(info.name)


def test_a_state_of_the_same_cycle_that_is_whole_is_kept(one: Backups, tmp_path: Path) -> None:
    """At the end of a run the joint model is written once more, without them."""
    written = with_agents(one, tmp_path, 4)
    one.write(written)
    info = one.write(replace(written, agents={}))
    assert set(one.read(info.name).agents) == {"0", "1"}
