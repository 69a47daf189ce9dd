"""Runs in cluster mode: the driver is a container, YARN starts it again, and what it was lies on HDFS."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpca.cli.dev.hadoop import Hadoop
from mpca.storage import Location, Store, joined
from mpca.storage.webhdfs import WebHdfsStore
from tests.hadoop.support import ROOT, application, end_applications, jvms, nothing_lives, only, records, submit

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
MASTER = "org.apache.spark.deploy.yarn.ApplicationMaster"


@pytest.fixture(autouse=True)
def nothing_runs_on(hadoop: Hadoop) -> Iterator[None]:
    yield
    end_applications(hadoop)


@pytest.fixture
def far(hadoop: Hadoop, folder: str) -> Iterator[Store]:
    """The run folder on HDFS, as somebody from outside reads it."""
    store = WebHdfsStore(Location.parse(hadoop.webhdfs_url + folder))
    yield store
    store.close()


def attempts(hadoop: Hadoop, id: str) -> int:
    return len(hadoop.resourcemanager(f"apps/{id}/appattempts")["appAttempts"]["appAttempt"])


def backed_up(far: Store) -> list[int]:
    """Cycles of the backups, from their names."""
    return [int(one.rpartition("-")[2]) for one in (far.names("backups") if far.exists("backups") else ()) if one[0] != "."]


def test_a_killed_driver_comes_back_and_the_run_reaches_its_target(
    hadoop: Hadoop, folder: str, far: Store, tmp_path: Path
) -> None:
    run = submit(
        tmp_path,
        "--deploy-mode",
        "cluster",
        sets=(f"run.dir={hadoop.hdfs_url}{folder}", "objectives.target_error=0.08", "optimizer.lr=3e-5", "backup.interval=1s"),
    )
    try:
        run.until(lambda: [one for one in backed_up(far) if one > 1], "a backup of a few cycles")
        id = only(run.text())
        (master,) = jvms(id, MASTER)
        os.kill(master, signal.SIGKILL)
        assert run.ended() == 0, run.text()[-4000:]
    finally:
        run.close()
    summary = json.loads(far.read("summary.json"))
    assert summary["status"] == "reached"
    assert summary["final_error"] <= 0.08
    assert summary["attempts"] == 2
    assert summary["resumed_from"].startswith(f"{hadoop.hdfs_url}{folder}/backups/")
    lines = records(joined(far).decode())
    assert [one["attempt"] for one in lines if one["kind"] == "run"] == [1, 2]
    again = next(at for at, one in enumerate(lines) if one["kind"] == "run" and one["attempt"] == 2)
    cycles = [one["cycle"] for one in lines[again:] if one["kind"] == "cycle"]
    before = [one["cycle"] for one in lines[:again] if one["kind"] == "cycle"]
    assert before == list(range(len(before))), "what reached HDFS before the kill is whole"
    assert cycles == list(range(cycles[0], cycles[0] + len(cycles)))
    assert cycles[0] == int(summary["resumed_from"].rpartition("-")[2]), "it goes on from the backup"
    assert cycles[0] > 1
    assert attempts(hadoop, id) == 2
    told = application(hadoop, id)
    assert (told["state"], told["finalStatus"]) == ("FINISHED", "SUCCEEDED")
    nothing_lives(id)


def test_memory_is_told_with_limit_peak_and_setting_and_a_users_mistake_is_not_repeated(
    hadoop: Hadoop, folder: str, far: Store, tmp_path: Path
) -> None:
    script = ROOT / "tests" / "hadoop" / "programs" / "greedy.py"
    run = submit(
        tmp_path,
        *("--deploy-mode", "cluster", "--train", str(script)),
        str(tmp_path / "been-here"),
        sets=(f"run.dir={hadoop.hdfs_url}{folder}", "objectives.max_time=10min", "spark.yarn.maxAppAttempts=2"),
    )
    try:
        assert run.ended() == 1, run.text()[-4000:]
    finally:
        run.close()
    assert "the user's own mistake" in run.text().splitlines()[-1]
    id = only(run.text())
    lines = records(joined(far).decode())
    lost = next(one for one in lines if one["kind"] == "agent" and one["event"] == "lost")
    assert lost["index"] == 1
    for word in (
        "killed for physical memory: peak ",
        ", limit 1.9 GB",
        "spark.executor.memoryOverhead",
        "cluster.agent_memory",
    ):
        assert word in lost["reason"]
    assert len([one for one in lines if one["kind"] == "run"]) == 1, "the next attempt does not begin again"
    summary = json.loads(far.read("summary.json"))
    assert summary["status"] == "failed"
    assert "the user's own mistake" in summary["reason"]
    assert (summary["agents_lost"], summary["attempts"]) == (1, 1)
    assert attempts(hadoop, id) == 2, "YARN tried again"
    nothing_lives(id)


def test_ctrl_c_of_the_submitter_kills_the_application_and_leaves_nothing(
    hadoop: Hadoop, folder: str, far: Store, tmp_path: Path
) -> None:
    run = submit(tmp_path, "--deploy-mode", "cluster", sets=(f"run.dir={hadoop.hdfs_url}{folder}",))
    try:
        run.until(lambda: '"event": "started"' in joined(far).decode() if far.exists("") else False, "an agent")
        run.process.send_signal(signal.SIGINT)
        assert run.ended(60) == 130, run.text()[-4000:]
    finally:
        run.close()
    id = only(run.text())
    assert application(hadoop, id)["state"] == "KILLED"
    nothing_lives(id)
