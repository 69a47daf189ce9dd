"""Backups on real HDFS whose writer is killed around a rename, and whose newest one is damaged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpca.cli.dev.hadoop import Hadoop
from mpca.errors import BackupError
from mpca.spark.hdfs.store import HdfsStore
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


def _blocks(hadoop: Hadoop) -> list[Path]:
    return list(hadoop.setup.data.glob("datanode[12]/current/BP-*/current/finalized/**/blk_*"))


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize("through", ["webhdfs", "jvm"])
def test_a_block_edited_on_one_data_node_costs_nothing_and_on_all_of_them_the_newest_backup(
    store: WebHdfsStore,
    through: str,
    request: pytest.FixtureRequest,
    hadoop: Hadoop,
    folder: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The file that holds the block, under the DataNode that serves it: its checksum is beside it, as before."""
    backups = Backups(store, "backups")
    before = set(_blocks(hadoop))  # other tests wrote equal backups
    for cycle in (1, 2):
        backups.write(state(cycle))
    data = store.read(NEWEST)
    new = [one for one in _blocks(hadoop) if one not in before]
    replicas = [one for one in new if one.stat().st_size == len(data) and one.read_bytes() == data]
    assert {one.relative_to(hadoop.setup.data).parts[0] for one in replicas} == {"datanode1", "datanode2"}
    reader: Any = WebHdfsStore(store.root, patience_s=3.0)  # it takes a broken answer for a DataNode that dies
    if through == "jvm":
        reader = HdfsStore(request.getfixturevalue("spark"), Location.parse(hadoop.hdfs_url + folder))
    request.addfinalizer(reader.close)
    with caplog.at_level(logging.WARNING, "mpca.backup"):
        for number, replica in enumerate(replicas, 1):
            with replica.open("r+b") as file:
                file.seek(len(data) // 2)
                file.write(bytes([data[len(data) // 2] ^ 1]))
            assert replica.read_bytes() != data
            found = Backups(reader, "backups").newest()
            assert same(found.state, state(2 if number == 1 else 1))
            assert ("passed over: term-0001-cycle-00000002: " in caplog.text) == (number == 2)
    Backups(reader, "backups").write(state(3))
    assert same(Backups(store, "backups").newest().state, state(3))


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
