"""What the driver's shell makes of agents' own states: a backup that waits for their files, and the end of a run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from mpca.api.finish import back_up_last
from mpca.driver.backups import BackupWriter
from mpca.driver.events import AgentSaved, ClusterEvent
from mpca.driver.objectives import DumpModel, Goals
from mpca.errors import JvmError
from mpca.records import BackupRecord
from mpca.storage import Backups, LocalStore, hidden_folder
from tests.driver.test_runner_beside import Run
from tests.support.fake_executor import wait_until


class Saving:
    """A run that is about to save its agents; their executors write into a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.backups = folder, Backups(LocalStore(folder), "")
        self.run = Run(Goals.of([DumpModel(interval="2s")]), writer=self._writer(), saves_to="file:///backups")
        self.run.cycles(2)
        self.run.at(2.0)
        while self.run.order.save is None:
            self.run.answer()
        self.asked = self.run.order.save

    def _writer(self) -> BackupWriter:
        return BackupWriter(self.backups, "r", 1, 0, {})

    def said(self, agent: int, seconds: float = 0.5) -> AgentSaved:
        """Its executor has written the file."""
        name = self.asked.urls[agent].rpartition("/")[2]
        path = self.folder / hidden_folder(1, self.run.hand.machine.cycle) / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"state")
        return AgentSaved(f"e{agent}", agent, 0, self.asked.number, 5, "ab" * 32, seconds, "")

    def records(self) -> list[BackupRecord]:
        self.run.runner.take_backups()
        return self.run.of(BackupRecord)


def test_the_backup_is_written_when_every_agents_file_is_there(tmp_path: Path) -> None:
    one = Saving(tmp_path)
    one.run.runner.step([one.said(1, seconds=0.75)])
    one.run.at(5.0)
    assert one.backups.names() == [], "it waits, and no other is asked for"
    one.run.runner.step([one.said(0)])
    one.run.at(5.1)
    wait_until(one.records, "the backup")
    (record,) = one.records()
    assert (record.ok, record.agents_s) == (True, 0.75)
    (info,) = one.backups.found()
    assert set(one.backups.manifest(info.name)["agents"]) == {"0", "1"}
    assert record.bytes == info.size_bytes


def stopped(one: Saving, words: list[ClusterEvent], error: Exception | None = None) -> dict[str, Any]:
    """The manifest of the last backup, when executors say this after the end."""

    def poll(timeout_s: float) -> list[ClusterEvent]:
        one.run.clock.set(one.run.clock.now() + 1.0)
        if error is not None:
            raise error
        return [words.pop(0)] if words else []

    one.run.cluster.poll = poll  # type: ignore[method-assign]
    back_up_last(one.run.runner, one.run.writer, 10.0, lambda: False, lambda line: None)
    return one.backups.manifest(one.backups.names()[0])


def test_the_end_waits_for_files_that_are_under_way(tmp_path: Path) -> None:
    one = Saving(tmp_path)
    assert set(stopped(one, [one.said(0), one.said(1)])["agents"]) == {"0", "1"}
    assert all(record.ok for record in one.records())


def test_but_not_for_ever(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    one = Saving(tmp_path)
    assert "agents" not in stopped(one, [one.said(0)])
    assert "the last backup is without the agents' own states: not written within 20 s" in caplog.text
    assert list(tmp_path.glob("*/agent-*")) == [], "a part of them is no part of a backup"


def test_nor_where_the_session_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert "agents" not in stopped(Saving(tmp_path), [], JvmError("the driver's JVM is gone"))
    assert "the last backup is without the agents' own states: the driver's JVM is gone" in caplog.text
