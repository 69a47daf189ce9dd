"""What takes too long for every day: the application master's worker dies, packets are lost in one direction, a disk is full.

Collected only when the file is named: ``make test-docker-full``.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dockerized.cluster import WORKERS, Cluster

from tests.docker.support import Run, cluster_up, nothing_runs_on_workers, submit, whole
from tests.hadoop.support import Submitted, only, records

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800)]
MOST_S = 400.0
#: Reads one file of a run's folder on HDFS, in the client.
READ = """
import sys
from mpca.storage import Location, joined
from mpca.storage.webhdfs import WebHdfsStore
store = WebHdfsStore(Location.parse("webhdfs://namenode:9870" + sys.argv[1]))
sys.stdout.write((joined(store) if sys.argv[2] == "records.jsonl" else store.read(sys.argv[2])).decode())
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Six hosts; each NodeManager has a disk of 1 GB, in memory."""
    with cluster_up(tmp_path_factory, small_disks=dict.fromkeys(WORKERS, "1g")) as one:
        yield one


def until(run: Submitted, there: Callable[[], Any], what: str) -> None:
    """`run.until`, where a daemon on a busy machine may be too slow to answer."""

    def look() -> Any:
        with contextlib.suppress(OSError):
            return there()

    run.until(look, what)


def test_the_driver_comes_back_by_itself_when_its_worker_dies(cluster: Cluster) -> None:
    folder = "/runs/reborn"

    def read(name: str) -> str:
        return cluster.run("client", "python", "-c", READ, folder, name).stdout

    def attempts() -> int:
        return len(cluster.resourcemanager(f"apps/{only(run.text())}/appattempts")["appAttempts"]["appAttempt"])

    url = f"hdfs://namenode:8020{folder}"
    run = submit(
        cluster,
        "reborn",
        *(f"run.dir={url}", "objectives.target_error=0.08", "optimizer.lr=3e-5", "backup.interval=1s"),
        words=("--deploy-mode", "cluster"),
    )
    try:
        run.until(
            lambda: [one for one in records(read("records.jsonl"), "backup") if one["ok"] and one["cycle"] > 2],
            "a backup of a few cycles",
        )
        id = only(run.text())
        worker = str(cluster.resourcemanager(f"apps/{id}")["app"]["amHostHttpAddress"]).partition(":")[0]
        cluster.kill(worker)
        until(run, lambda: cluster.nodes()[worker] == "LOST", "YARN gives the worker up")
        until(run, lambda: attempts() == 2, "a second attempt")
        cluster.start(worker)
        assert run.ended(MOST_S) == 0, run.text()[-4000:]
    finally:
        run.close()
    summary = json.loads(read("summary.json"))
    assert summary["status"] == "reached"
    assert summary["final_error"] <= 0.08
    assert summary["attempts"] == 2
    assert summary["resumed_from"].startswith(f"{url}/backups/")
    lines = records(read("records.jsonl"))
    again = next(at for at, one in enumerate(lines) if one["kind"] == "run" and one["attempt"] == 2)
    before = [one["cycle"] for one in lines[:again] if one["kind"] == "cycle"]
    after = [one["cycle"] for one in lines[again:] if one["kind"] == "cycle"]
    assert before == list(range(len(before)))
    assert after == list(range(after[0], after[0] + len(after)))
    assert after[0] == int(summary["resumed_from"].rpartition("-")[2]), "it goes on from the backup"
    told = cluster.resourcemanager(f"apps/{id}")["app"]
    assert (told["state"], told["finalStatus"]) == ("FINISHED", "SUCCEEDED")
    nothing_runs_on_workers(cluster)


def test_one_run_goes_on_when_packets_are_lost_one_way_and_when_a_disk_is_full(cluster: Cluster) -> None:
    run = Run(
        cluster,
        "one-way",
        *("objectives.target_error=0", "objectives.max_time=60min", "backup.interval=3s", "cluster.cycle_deadline=6s"),
        *("spark.network.timeout=60s", "spark.executor.heartbeatInterval=5s"),
    )
    try:
        run.until(lambda: len(run.full(-1)) > 3, "the first cycles")

        # what its executor says does not arrive at the driver, what the driver says arrives; YARN hears the node well
        agent = run.away_from_the_master()
        worker, away = run.places()[agent], str(agent)
        rule = ("OUTPUT", "-d", cluster.address("client"), "-j", "DROP")
        at = run.cycle()
        assert cluster.run(worker, "iptables", "-A", *rule).returncode == 0
        mute = run.seconds_until(
            left_out=lambda: [one for one in run.seen("cycle") if one["cycle"] > at and away in one["left_out"]],
            cycle_without_it=lambda: [
                one for one in run.seen("cycle") if one["cycle"] > at and away not in one["contributors"]
            ],
            replaced=lambda: run.seen("agent", event="replaced", index=agent),
            full_cycle=lambda: [one for one in run.full(at) if one["contributors"][away]["incarnation"] > 0],
        )
        assert cluster.nodes()[worker] == "RUNNING"
        assert cluster.run(worker, "iptables", "-D", *rule).returncode == 0
        at = run.cycle()
        run.until(lambda: len(run.full(at)) > 3, "cycles after packets come through again")

        # the disk of a NodeManager fills up
        agent = run.away_from_the_master()
        worker, away = run.places()[agent], str(agent)
        incarnation = len(run.seen("agent", event="replaced", index=agent))
        at = run.cycle()
        cluster.run(worker, "dd", "if=/dev/zero", "of=/data/nodemanager/local/filler", "bs=1M")
        full = run.seconds_until(
            yarn=lambda: cluster.nodes()[worker] == "UNHEALTHY",
            full_cycle=lambda: [one for one in run.full(at) if one["contributors"][away]["incarnation"] > incarnation],
        )
        assert run.places()[agent] != worker
        assert cluster.run(worker, "rm", "/data/nodemanager/local/filler").returncode == 0
        full |= run.seconds_until(node_back=lambda: cluster.nodes()[worker] == "RUNNING")
        for what, took in (("packets are lost one way", mute), ("the disk is full", full)):
            print(f"seconds after {what}: {took}")
            assert max(took.values()) < MOST_S
        assert run.interrupt() == 130, run.submitted.text()[-4000:]
    finally:
        run.submitted.close()
    summary = json.loads((run.folder / "summary.json").read_text())
    whole(run.seen("cycle"), summary)
    assert summary["status"] == "interrupted"
    assert summary["agents_replaced"] == len(run.seen("agent", event="replaced")) >= 2
    checked = cluster.run("client", "python", "-m", "mpca.cli", "backups", "verify", run.backups, "--json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    nothing_runs_on_workers(cluster)
