"""Agents' own states on HDFS: executors write them beside the joint model, and the next attempt's agents read them there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from mpca.api.launch import Ended, Job, launch, resolve
from mpca.api.shipping import ship
from mpca.cli.dev.hadoop import Hadoop
from mpca.storage import Backups, Location
from mpca.storage.webhdfs import WebHdfsStore
from tests.spark import jobs

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.timeout(600)]
cloudpickle.register_pickle_by_value(jobs)


def train(spark: Any, url: str, here: Path, seconds: int, resume: str | None = None) -> Ended:
    sets = ("cluster.agents=2", "cluster.start_timeout=150s", "backup.interval=1s", "backup.optimizers=true")
    config = resolve(None, (*sets, f"objectives.max_time={seconds}s"))
    return launch(Job(config, ship(jobs.remembering, (str(here),), {}), run_dir=url, resume=resume, session=spark))


def tapes(ended: Ended, here: Path) -> dict[int, list[str]]:
    return {n: (here / f"agent{n}-{one['pid']}.txt").read_text().splitlines() for n, one in ended.returns.items()}


def test_the_next_attempt_reads_from_hdfs_what_executors_wrote_there(
    spark: Any, hadoop: Hadoop, folder: str, tmp_path: Path
) -> None:
    url, store = hadoop.hdfs_url + folder, WebHdfsStore(Location.parse(hadoop.webhdfs_url + folder))
    first = train(spark, url, tmp_path, 5)
    assert first.exit_code == 0, first.reason
    newest = Backups(store, "backups").newest()
    assert newest.passed_over == []
    assert set(newest.state.agents) == {"0", "1"}
    for one in newest.state.agents.values():
        assert store.size(f"backups/{newest.info.name}/{one['file']}") == one["bytes"]
    again = train(spark, url, tmp_path, 8, "auto")
    assert again.exit_code == 0, again.reason
    before, after = tapes(first, tmp_path), tapes(again, tmp_path)
    for agent in (0, 1):
        # its parameters too, but where a joint state came in the same pause, behind the order that stopped the run
        optimizer = after[agent][0].split()[:-1]
        assert optimizer in [line.split()[:-1] for line in before[agent][1:]], (after[agent][0], before[agent][-9:])
    store.close()
