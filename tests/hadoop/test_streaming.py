"""Agents stream from HDFS through their executors while a DataNode dies and the NameNode is down: each record once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import cloudpickle
import pytest

from mpca.cli.dev.daemons import WORKERS
from mpca.cli.dev.hadoop import Hadoop
from mpca.data.cache import RecordCache
from mpca.data.ingest import Options, ingest
from mpca.data.manifest import opened
from mpca.data.plan import Readers
from mpca.data.stream_reader import ShareReader, SplitData
from tests.spark import jobs
from tests.spark.engine import Observed, run_engine
from tests.spark.numbered import numbered_pictures

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.timeout(900)]
cloudpickle.register_pickle_by_value(jobs)
RECORDS = 480


def test_every_record_of_an_epoch_is_read_once_though_daemons_die(spark, hadoop: Hadoop, folder: str, tmp_path: Path) -> None:
    url = f"{hadoop.hdfs_url}{folder}/set"
    # Many shards: to begin one is a word with the NameNode.
    ingest(numbered_pictures(tmp_path / "source", RECORDS), url, Options(shard_bytes=1 << 20), processes=1)
    with opened(url) as store:
        data = SplitData.open(store, "train")
        of = {"seed": 0, "incarnation": 0, "window_bytes": 1 << 20, "cache": RecordCache(0)}
        shares = [ShareReader(data, agent=agent, agents=2, **of).share_records for agent in range(2)]
        shards = len(data.manifest.splits["train"].shards)
    assert sum(shares) == RECORDS

    def story(run: Observed):
        yield lambda: run.data.get((0, 0), [0, 0, 0]) >= [0, 1, 0]
        hadoop.kill("datanode1")
        yield lambda: run.data[0, 0] >= [0, 2, 0]
        hadoop.kill("namenode")
        hadoop.start("namenode", wait=False)
        yield lambda: all(run.data.get((agent, 0), [0])[0] > 0 for agent in range(2))
        run.end()

    own = ("name=imagenet", f"path={url}", "crop=32", "shorter_edge=32", "read_ahead=1MiB", "batch_size=4")
    sets = ("cluster.agents=2", "cluster.cycle_deadline=150s", *(f"data.{one}" for one in own))
    try:
        told = run_engine(spark, tmp_path, tmp_path / "run", jobs.streamed, 0.05, sets=sets, story=story)
    finally:
        hadoop.start("datanode1")
    assert told.ended.exit_code == 0, told.ended.reason
    assert told.ended.returns == {0: "ExecutorFiles", 1: "ExecutorFiles"}
    assert told.agents("lost") == [], "no order waited for a file"
    counted: Counter[int] = Counter()
    for agent, share in enumerate(shares):
        labels = (told.run.folder / f"labels-{agent}-{told.run.pids[agent, 0]}").read_text().split()
        counted.update(map(int, labels[:share]))
    assert counted == Counter(range(RECORDS))
    moved = [one.bytes for one in told.cycles]
    assert sum(one["data_read"] for one in moved) > 0
    assert sum(one["data_remote"] for one in moved) == told.ended.summary["bytes_data_remote"] == 0, "all of it is on this host"
    told_first = next(one.readers for one in told.run.orders if one.readers is not None)
    readers = Readers.from_dict(told_first.readers)
    assert len(readers.shard_hosts) == shards
    assert {host for one in readers.shard_hosts for host in one} == set(WORKERS), "blocks are on both, agents on neither"
    assert readers.near(0) == {0: set(), 1: set()}
    assert all(readers.home(agent) for agent in range(2))
