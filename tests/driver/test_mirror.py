"""Records on their way to storage, and the beat by which another driver sees that the folder has an owner who lives."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mpca.driver.mirror import Mirror, beats, read_beat
from mpca.errors import BackupError
from mpca.storage import LocalStore, PartWriter, Store, joined
from mpca.storage.blocks import Piece
from tests.support.fake_executor import wait_until

SOON = 0.01  # seconds between two beats, here

HANGING = """
import threading
from mpca.driver.mirror import Mirror

class Dead:
    def write(self, path, *pieces):
        print("asked", flush=True)
        threading.Event().wait()

mirror = Mirror(Dead(), lambda: None)
mirror.close(0.1)
"""


class Failing(LocalStore):
    """Storage that fails while it is told to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.fails = threading.Event()
        self.failed = threading.Event()

    def write(self, path: str, *pieces: Piece) -> None:
        if self.fails.is_set():
            self.failed.set()
            raise OSError(5, "Input/output error")
        super().write(path, *pieces)


Starting = Callable[..., Mirror]


@pytest.fixture
def start() -> Iterator[Starting]:
    with ExitStack() as held:

        def made(store: Store, guard: Callable[[], None] = lambda: None) -> Mirror:
            mirror = Mirror(store, guard, every_s=SOON)
            held.callback(mirror.close)
            return mirror

        yield made


def test_it_beats_until_it_is_closed(tmp_path: Path, start: Starting) -> None:
    store = LocalStore(tmp_path)
    assert read_beat(store) is None
    assert not beats(store, 0.05), "nobody"
    mirror = start(store)
    wait_until(lambda: read_beat(store) is not None, "the first beat")
    assert beats(store, 10.0)
    mirror.close()
    assert read_beat(store) is not None, "the last one stays"
    assert not beats(store, 0.05)


def test_records_follow_once_there_are_some_and_to_the_last_at_the_end(tmp_path: Path, start: Starting) -> None:
    store, records = LocalStore(tmp_path / "there"), tmp_path / "records.jsonl"
    mirror = start(store)
    wait_until(lambda: read_beat(store) is not None, "a beat, without records")
    records.write_bytes(b"one\n")
    mirror.writer = PartWriter(store, records, 1, 0)
    wait_until(lambda: joined(store) == b"one\n", "the first record")
    with records.open("ab") as file:
        file.write(b"two\n")
    wait_until(lambda: joined(store) == b"one\ntwo\n", "the second record")


def test_of_a_growing_folder_the_newest_file_comes_at_the_end(tmp_path: Path, start: Starting) -> None:
    store, folder = LocalStore(tmp_path / "there"), tmp_path / "tensorboard"
    mirror = start(store)
    mirror.growing = folder
    mirror.copy_growing(newest=True)
    folder.mkdir()
    for name in ("a.1", "a.2", "a.3"):
        (folder / name).write_text(name)
    wait_until(lambda: store.names("tensorboard") == ["a.1", "a.2"], "the files that do not grow")
    (folder / "a.3").write_text("more")
    mirror.close()
    mirror.copy_growing(newest=True)
    assert {name: store.read(f"tensorboard/{name}") for name in store.names("tensorboard")} == {
        "a.1": b"a.1", "a.2": b"a.2", "a.3": b"more"
    }  # fmt: skip


def test_storage_that_fails_is_tried_again_and_warned_of_once(
    tmp_path: Path, start: Starting, caplog: pytest.LogCaptureFixture
) -> None:
    store = Failing(tmp_path)
    store.fails.set()
    mirror = start(store)
    for _ in range(3):
        store.failed.clear()
        assert store.failed.wait(10.0)
    assert mirror.lost is None
    store.fails.clear()
    wait_until(lambda: read_beat(store) is not None, "a beat, when storage is well")
    said = [one for one in caplog.records if "records are not on HDFS yet" in one.getMessage()]
    assert len(said) == 1


def test_another_owner_is_final(tmp_path: Path, start: Starting) -> None:
    store = LocalStore(tmp_path)
    theirs = threading.Event()

    def guard() -> None:
        if theirs.is_set():
            raise BackupError("the folder is another driver's")

    mirror = start(store, guard)
    wait_until(lambda: read_beat(store) is not None, "a beat")
    assert mirror.lost is None
    theirs.set()
    wait_until(lambda: mirror.lost is not None, "the loss")
    assert str(mirror.lost) == "the folder is another driver's"
    assert not beats(store, 0.05), "it does not beat in another's folder"


def test_a_driver_whose_storage_hangs_can_end() -> None:
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, "asked\n"), done.stderr
