"""The writer of backups beside training: it holds nobody up, and says of each how it ended."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpca import methods
from mpca.driver.backups import BackupWriter
from mpca.driver.joint import JointModel
from mpca.storage import Backups, LocalStore
from mpca.storage.blocks import Piece
from tests.driver.support import hello
from tests.support.fake_executor import wait_until

ROOT = Path(__file__).resolve().parents[2]

SECONDS = 10.0  # for what another thread does
SLOW_S = 60.0  # storage that hangs, for good as far as a test can wait


class Slow(LocalStore):
    """Storage whose writes wait until they are let through."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.open = threading.Event()
        self.asked = threading.Event()

    def write(self, path: str, *pieces: Piece) -> None:
        self.asked.set()
        assert self.open.wait(SLOW_S)
        super().write(path, *pieces)


class Full(LocalStore):
    def write(self, path: str, *pieces: Piece) -> None:
        raise OSError(28, "No space left on device")


def joint(value: float) -> JointModel:
    model = JointModel(methods.from_dict({"name": "mpca", "shards": 3}), hello(0).hello)
    for shard in range(3):
        model.adopt(shard, np.full(2, value, np.float32))
    return model


def writer(store: Any) -> BackupWriter:
    return BackupWriter(Backups(store, "backups"), "digits", term=2, seed=7, software={"mpca": "0.1.0"})


def test_nobody_waits_for_one_that_is_being_written(tmp_path: Path) -> None:
    store = Slow(tmp_path)
    backups = writer(store)
    assert (backups.busy, backups.poll()) == (False, [])
    backups.submit(backups.state(joint(1.5), 12, {"steps": [3]}, {"last": 1}))
    assert store.asked.wait(SECONDS)
    assert (backups.busy, backups.poll()) == (True, []), "poll came back while storage hung"
    store.open.set()
    backups.close(SECONDS)
    (said,) = backups.poll()
    assert backups.poll() == [], "of each once"
    assert (said["cycle"], said["ok"], said["reason"]) == (12, True, None)
    assert Path(said["path"]).is_dir()
    found = Backups(store, "backups").newest().state
    assert found.vector.tolist() == [1.5] * 6
    assert (found.run, found.term, found.cycle, found.seeds) == ("digits", 2, 12, {"run": 7})
    assert (found.method["name"], found.progress, found.data) == ("mpca", {"steps": [3]}, {"last": 1})


def test_a_second_one_is_written_after_the_first_and_both_are_told_of(tmp_path: Path) -> None:
    backups = writer(LocalStore(tmp_path))
    for cycle in (3, 6):
        backups.submit(backups.state(joint(float(cycle)), cycle, {}, {}))
    backups.close(SECONDS)
    assert [(one["cycle"], one["ok"]) for one in backups.poll()] == [(3, True), (6, True)]
    assert Backups(LocalStore(tmp_path), "backups").newest().state.vector.tolist() == [6.0] * 6


def test_one_that_cannot_be_written_is_told_of_with_the_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    backups = writer(Full(tmp_path))
    backups.submit(backups.state(joint(1.0), 4, {}, {}))
    backups.close(SECONDS)
    (said,) = backups.poll()
    assert (said["path"], said["cycle"], said["bytes"], said["ok"]) == ("", 4, 0, False)
    assert "No space left on device" in said["reason"]
    assert "backup not written" in caplog.text


def test_one_that_hangs_is_abandoned_at_the_end_and_the_last_one_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Slow(tmp_path)
    backups = writer(store)
    backups.submit(backups.state(joint(1.0), 4, {}, {}))
    assert store.asked.wait(SECONDS)
    backups.submit(backups.state(joint(2.0), 5, {}, {}))  # as a run does that ends meanwhile
    backups.close(0.05)
    assert backups.poll() == []
    assert "still being written and is abandoned" in caplog.text
    store.open.set()
    wait_until(lambda: not backups._thread.is_alive(), "the end of the writer")
    assert Backups(store, "backups").names() == ["term-0002-cycle-00000004"], "what had not begun is not written"


def test_the_copy_of_the_model_is_let_go_when_it_is_written(tmp_path: Path) -> None:
    """It is twice the model, and the driver of a large one would have it until the next backup."""
    backups = writer(LocalStore(tmp_path))
    state = backups.state(joint(1.0), 4, {}, {})
    copy = weakref.ref(state.vector)
    backups.submit(state)
    del state
    wait_until(lambda: copy() is None, "the end of the copy")
    assert [one["ok"] for one in backups.poll()] == [True]
    backups.close(SECONDS)


def test_a_process_ends_while_storage_hangs(tmp_path: Path) -> None:
    script = """if True:
        import sys
        from pathlib import Path
        from tests.driver.test_backups import Slow, joint, writer
        backups = writer(Slow(Path(sys.argv[1])))
        backups.submit(backups.state(joint(1.0), 4, {}, {}))
        backups.close(0.05)
    """
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, check=True, timeout=100)
    assert time.monotonic() - began < SLOW_S
