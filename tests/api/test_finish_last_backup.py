"""The last backup of a run: it may take as long as the run may, unless somebody wants the run to end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpca.api import finish
from tests.driver.test_backups import SECONDS, Slow, joint, writer

#: In place of `LAST_BACKUP_S`.
SHORT_S = 0.3


class Ending:
    """A run that has ended, whose storage is slow."""

    def __init__(self, root: Path) -> None:
        self.store, self.told = Slow(root), list[str]()
        self.writer = writer(self.store)
        self.done: list[dict[str, Any]] = []
        self.runner: Any = SimpleNamespace(
            joint=SimpleNamespace(complete=True),
            back_up_saved=lambda: None,
            back_up_last=self._back_up,
            take_backups=self._take,
        )

    def _back_up(self) -> None:
        assert not self.writer.busy, "two copies of the joint model"
        self.writer.submit(self.writer.state(joint(1.0), 4, {}, {}))

    def _take(self) -> None:
        self.done += self.writer.poll()

    def back_up(self, patience_s: float, hurried: Any = lambda: False) -> float:
        """How long it took."""
        began = time.monotonic()
        finish.back_up_last(self.runner, self.writer, patience_s, hurried, self.told.append)
        return time.monotonic() - began


@pytest.fixture
def ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ending]:
    monkeypatch.setattr(finish, "LAST_BACKUP_S", SHORT_S)
    one = Ending(tmp_path)
    yield one
    one.store.open.set()


def test_a_large_one_is_written_to_its_end_and_a_line_says_so(ending: Ending) -> None:
    threading.Timer(2 * SHORT_S, ending.store.open.set).start()
    assert ending.back_up(patience_s=61.0) < SECONDS
    assert [one["ok"] for one in ending.done] == [True]
    assert ending.told == ["the last backup is being written, for at most 1m01s more"]


def test_the_joint_model_is_copied_for_it_when_the_one_before_is_written(ending: Ending) -> None:
    ending.writer.submit(ending.writer.state(joint(0.0), 3, {}, {}))
    assert ending.store.asked.wait(SECONDS)

    def begins() -> None:
        assert ending.writer.busy
        threading.Timer(SHORT_S, ending.store.open.set).start()

    ending.runner.back_up_saved = begins
    ending.back_up(patience_s=60.0)
    assert [(one["cycle"], one["ok"]) for one in ending.done] == [(3, True), (4, True)]


def test_one_that_is_written_at_once_is_not_spoken_of(ending: Ending) -> None:
    ending.store.open.set()
    ending.back_up(patience_s=60.0)
    assert ([one["ok"] for one in ending.done], ending.told) == ([True], [])


def test_who_wants_the_run_to_end_waits_no_longer(ending: Ending, caplog: pytest.LogCaptureFixture) -> None:
    since = time.monotonic()
    took = ending.back_up(patience_s=60.0, hurried=lambda: time.monotonic() - since > 2 * SHORT_S)
    assert 3 * SHORT_S <= took < SECONDS
    assert ending.done == []
    assert "a backup was still being written and is abandoned" in caplog.text


def test_storage_that_hangs_has_as_long_as_the_run_may_take(ending: Ending, caplog: pytest.LogCaptureFixture) -> None:
    assert 2 * SHORT_S <= ending.back_up(patience_s=2 * SHORT_S) < SECONDS
    assert "a backup was still being written and is abandoned" in caplog.text
