"""Backups on real HDFS whose writer is killed around a rename, and whose newest one is damaged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from mpca.cli.dev.hadoop import Hadoop
from mpca.errors import BackupError
from mpca.storage import Backups, Location, RunLock
from mpca.storage.webhdfs import WebHdfsStore
from tests.storage.test_backup import same, state
from tests.support.memory_store import Crash

pytestmark = pytest.mark.hadoop
NEWEST = "backups/term-0001-cycle-00000002/model.safetensors"


@pytest.fixture
def store(hadoop: Hadoop, folder: str) -> Iterator[WebHdfsStore]:
    one = WebHdfsStore(Location.parse(hadoop.webhdfs_url + folder))
    yield one
    one.close()


class DiesAtRename:
    """Every call goes on to the real store; the writer dies before or after its rename of that number."""

    def __init__(self, store: WebHdfsStore, number: int, after: bool) -> None:
        self._store, self._left, self._after = store, number, after

    def rename(self, old: str, new: str) -> None:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Crash(f"before {old} -> {new}")
        self._store.rename(old, new)
        if self._left == 0:
            raise Crash(f"after {old} -> {new}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3], ids=["damaged", "new", "old"])
def test_a_writer_that_dies_at_a_rename_leaves_whole_backups(store: WebHdfsStore, number: int, after: bool) -> None:
    """Its renames: the damaged one of the same name out of the way, the new one into place, an old one away."""
    backups = Backups(store, "backups", keep=2)
    for cycle in (0, 1, 2):
        backups.write(state(cycle))
    assert [one.cycle for one in backups.found()] == [2, 1]
    store.write(NEWEST, b"damaged")
    backups = Backups(store, "backups", keep=1)
    with pytest.raises(Crash):
        Backups(DiesAtRename(store, number, after), "backups", keep=1).write(state(2))
    assert same(backups.newest().state, state(2 if (number, after) >= (2, True) else 1))
    backups.write(state(3))
    assert store.names("backups") == ["term-0001-cycle-00000003"]


@pytest.mark.parametrize("damage", ["truncated", "emptied", "flipped"])
def test_the_one_before_a_damaged_newest_is_taken_and_said(
    store: WebHdfsStore, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    backups = Backups(store, "backups")
    for cycle in (1, 2):
        backups.write(state(cycle))
    data = store.read(NEWEST)
    flipped = data[:-1] + bytes([data[-1] ^ 1])
    store.write(NEWEST, {"truncated": data[:-1], "emptied": b"", "flipped": flipped}[damage])
    with caplog.at_level(logging.WARNING, "mpca.backup"):
        found = backups.newest()
    assert same(found.state, state(1))
    assert "term-0001-cycle-00000002: model.safetensors" in caplog.text


def test_of_two_drivers_one_has_the_lock_and_the_other_hears_its_name(store: WebHdfsStore) -> None:
    first, second = RunLock(store), RunLock(store)
    first.claim("application_1, pid 7 on w1", alive=lambda owner: True)
    with pytest.raises(BackupError, match=r"path=webhdfs://.*/lock, owner=application_1, pid 7 on w1, term=1"):
        second.claim("application_2", alive=lambda owner: True)
    second.claim("application_2", alive=lambda owner: False)
    guarded = Backups(store, "backups", guard=first.check)
    with pytest.raises(BackupError, match="owner=application_2, term=2"):
        guarded.write(state(1))
    assert Backups(store, "backups").found() == []
