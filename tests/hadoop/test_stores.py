"""The promises of every store, kept by the two on HDFS: the same tests as of the local one; and what only HDFS does."""

from __future__ import annotations

import errno
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from mpca.cli.dev.hadoop import Hadoop
from mpca.records import LineWriter, MetricsRecord
from mpca.report.follow import Follower
from mpca.spark.hdfs.store import HdfsStore
from mpca.storage import Store
from mpca.storage.locations import Location
from mpca.storage.parts import PartWriter
from mpca.storage.webhdfs import WebHdfsStore
from tests.storage import test_stores as contract

pytestmark = [pytest.mark.hadoop, pytest.mark.spark]
MIB = 1 << 20
PROMISES = [
    one
    for name, one in inspect.getmembers(contract, inspect.isfunction)
    if name.startswith("test_") and list(inspect.signature(one).parameters) == ["store"]
]


@pytest.fixture(params=["webhdfs", "jvm"])
def store(request: pytest.FixtureRequest, hadoop: Hadoop, folder: str) -> Iterator[Store]:
    if request.param == "webhdfs":
        one: Any = WebHdfsStore(Location.parse(hadoop.webhdfs_url + folder))
    else:
        one = HdfsStore(request.getfixturevalue("spark"), Location.parse(hadoop.hdfs_url + folder))
    yield one
    one.close()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
def test_promise_of_every_store(store: Store, promise: Callable[[Store], None]) -> None:
    promise(store)


def test_a_large_file_comes_back_whole_and_in_ranges(store: Store) -> None:
    data = bytes(range(251)) * (33 * MIB // 251)
    view = memoryview(data)
    store.write("large", data[:10], view[10 : 17 * MIB], b"", view[17 * MIB : -3], data[-3:])
    assert store.size("large") == len(data)
    assert store.read("large") == data
    begin = 16 * MIB - 5  # over the edge between two pieces
    assert store.read_range("large", begin, 10) == data[begin : begin + 10]


def test_records_are_followed_while_they_are_written_by_parts(store: Store, tmp_path: Path) -> None:
    follower, local = Follower(store), tmp_path / "records.jsonl"
    assert not follower.look(), "there is no folder yet"
    parts, writer = PartWriter(store, local, term=1, start=0), LineWriter(local)
    with closing(writer):
        for number in range(12):
            writer.write(MetricsRecord(t=float(number), agent=0, incarnation=0, steps=number, metrics={"loss": 1.0}))
            parts.flush()
            assert follower.look()
            assert [one.t for one in follower.records] == [float(n) for n in range(number + 1)]
    parts.finish(b"")
    assert not follower.look(), "one file, of the same bytes"


def test_a_name_node_that_restarts_is_waited_for(store: Store, hadoop: Hadoop) -> None:
    store.write("before", b"1")
    hadoop.kill("namenode")
    starter = threading.Timer(1.0, hadoop.start, ("namenode", False))
    starter.start()
    began = time.monotonic()
    try:
        store.write("during", b"2")
        assert time.monotonic() - began >= 1.0, "the NameNode was not away"
        assert store.read("during") == b"2"
        assert store.read("before") == b"1"
    finally:
        starter.join()
        hadoop.up()


def test_a_quota_is_an_error_that_says_path_and_size(store: Store, hadoop: Hadoop, folder: str) -> None:
    store.write("few/first", b"1")
    hadoop.admin("-setQuota", "2", f"{folder}/few")  # the folder itself, and one file
    with pytest.raises(OSError, match=r"NSQuotaExceededException.*quota=2 .*few/second") as caught:
        store.write("few/second", b"2")
    assert caught.value.errno == errno.EDQUOT
    assert store.names("few") == ["first"]
    store.write("small/first", b"1")
    hadoop.admin("-setSpaceQuota", "1m", f"{folder}/small")
    with pytest.raises(OSError, match=r"DSQuotaExceededException.*small/second") as caught:
        store.write("small/second", b"2" * 4096)
    assert caught.value.errno == errno.EDQUOT


def test_what_is_private_is_its_owners_alone_and_what_is_above_it_is_not(
    store: Store, request: pytest.FixtureRequest, hadoop: Hadoop, folder: str
) -> None:
    with ExitStack() as stack:
        if isinstance(store, WebHdfsStore):
            mine: Any = WebHdfsStore(Location.parse(f"{hadoop.webhdfs_url}{folder}/runs/a"), private=True)
        else:
            spark = request.getfixturevalue("spark")
            mine = HdfsStore(spark, Location.parse(f"{hadoop.hdfs_url}{folder}/runs/a"), private=True)
        stack.callback(mine.close)
        mine.create_exclusive("lock", b"1")
        mine.write("backups/.tmp/model", b"2")
        mine.rename("backups/.tmp", "backups/one")
        mine.rename("lock", "former/lock")
        mine.write("former/lock", b"3")
        outside = WebHdfsStore(Location.parse(hadoop.webhdfs_url + folder))
        stack.callback(outside.close)
        status = outside._client.status
        paths = ("runs/a", "runs/a/backups", "runs/a/backups/one", "runs/a/former")
        assert {status(path)["permission"] for path in paths} == {"700"}
        files = ("runs/a/backups/one/model", "runs/a/former/lock")
        assert {status(path)["permission"] for path in files} == {"600"}
        assert status("runs")["permission"] == "755"
    stranger = WebHdfsStore(Location.parse(hadoop.webhdfs_url.replace("://", "://ann@") + folder))
    with pytest.raises(PermissionError):
        stranger.read("runs/a/former/lock")
    stranger.close()


def test_rights_that_lack_are_an_error_with_the_path(hadoop: Hadoop, folder: str) -> None:
    mine = WebHdfsStore(Location.parse(hadoop.webhdfs_url + folder))
    mine.write("x", b"1")
    mine.close()
    stranger = WebHdfsStore(Location.parse(hadoop.webhdfs_url.replace("://", "://ann@") + folder))
    with pytest.raises(PermissionError, match=r"user=ann.*/y"):
        stranger.write("y", b"1")
    stranger.close()


def test_nobody_there_is_an_error_after_the_patience() -> None:
    nobody = WebHdfsStore(Location.parse("webhdfs://127.0.0.1:1/x"), patience_s=0.0)
    with pytest.raises(OSError, match=r"webhdfs://127\.0\.0\.1:1/x/y"):
        nobody.read("y")
    nobody.close()
