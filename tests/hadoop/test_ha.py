"""HDFS with two NameNodes: every URL names the service, and runs go on when the active one dies and the other takes its place.

A cluster of its own, whose name space has a journal. In it a person who is not HDFS's superuser trains.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hdfs
import pytest

from mpca.cli.dev.daemons import SERVICE
from mpca.cli.dev.hadoop import Hadoop
from mpca.environment import child_environment
from mpca.spark.yarn.client import application_ids
from mpca.storage import Backups, Location, joined
from mpca.storage.opening import open_store
from mpca.storage.webhdfs import WebHdfsStore
from tests.hadoop.support import MPCA, ROOT, application, driver_records, end_applications, nothing_lives, records, submit
from tests.spark.numbered import numbered_pictures

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
USER = "ann"
STREAMING = ROOT / "tests" / "hadoop" / "programs" / "streaming.py"
IMAGES = """
[data]
name = "imagenet"
crop = 32
shorter_edge = 32
read_ahead = "1MiB"
batch_size = 8
"""


@pytest.fixture(scope="module")
def ha(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    """Eight daemons, and this process is a user of theirs, with a folder of its own."""
    cluster = Hadoop(tmp_path_factory.mktemp("ha"), print)
    try:
        cluster.up(ha=True)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**cluster.env(), "HADOOP_USER_NAME": USER}.items():
                patch.setenv(name, value)
            root = superuser(cluster)
            root.makedirs(f"/user/{USER}")
            root.set_owner(f"/user/{USER}", owner=USER, group=USER)
            yield cluster
    finally:
        cluster.down()


def superuser(ha: Hadoop) -> hdfs.InsecureClient:
    hosts = ha.webhdfs_url.replace("webhdfs://", "").split(";")
    return hdfs.InsecureClient(";".join(f"http://{host}" for host in hosts), user=getpass.getuser())


def say(*words: str) -> str:
    done = subprocess.run([*MPCA, *words], capture_output=True, text=True, env=child_environment(), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def images(ha: Hadoop, tmp_path_factory: pytest.TempPathFactory) -> str:
    """URL of a set of a hundred classes in some shards."""
    pictures, url = numbered_pictures(tmp_path_factory.mktemp("source"), 100), f"hdfs://{SERVICE}/user/{USER}/images"
    say("ingest", str(pictures), url, "--shard-size", "1MiB", "--processes", "1")
    return url


def test_without_a_jvm_both_name_nodes_are_asked_and_a_fail_over_is_waited_for(ha: Hadoop) -> None:
    with contextlib.closing(open_store(Location.parse(f"hdfs://{SERVICE}/user/{USER}/store"))) as store:
        assert isinstance(store, WebHdfsStore)
        assert store.root.text == f"{ha.webhdfs_url}/user/{USER}/store"
        store.write("before", b"1")
        for number in range(2):  # each of them is active once
            active = ha.active()
            assert active is not None
            ha.kill(active)
            assert ha.active() is None
            over = threading.Timer(1.0, ha.fail_over)
            over.start()
            try:
                store.create_exclusive(f"during-{number}", b"2")
                store.rename("before", f"moved/{number}")
                store.rename(f"moved/{number}", "before")
                assert store.names("moved") == []
                assert (store.read("before"), store.read(f"during-{number}")) == (b"1", b"2")
            finally:
                over.join()
                ha.start(active)
            assert ha.active() not in (active, None)


def test_commands_take_the_name_of_the_service(ha: Hadoop, images: str) -> None:
    assert json.loads(say("backups", "list", f"hdfs://{SERVICE}/user/{USER}", "--json")) == {"backups": []}
    told = say("doctor", "--run-dir", f"hdfs://{SERVICE}/user/{USER}/runs")
    assert not [line for line in told.splitlines() if line.startswith("stop")], told


def test_one_run_streams_and_backs_up_through_a_fail_over_and_outlives_rights_that_are_taken(
    ha: Hadoop, images: str, tmp_path: Path
) -> None:
    """The active NameNode is killed, and the other one made active; the rights to the folder are taken and given back."""
    conf, end, folder = tmp_path / "images.toml", tmp_path / "end", f"/user/{USER}/run"
    conf.write_text(IMAGES)
    root, far = superuser(ha), WebHdfsStore(Location.parse(ha.webhdfs_url + folder))
    backups = Backups(far, "backups")
    run = submit(
        tmp_path,
        *("--deploy-mode", "cluster", "--train", str(STREAMING), str(end)),
        sets=(f"run.dir=hdfs://{SERVICE}{folder}", f"data.path={images}", "backup.interval=1s", "objectives.max_time=20min"),
        conf=conf,
    )

    def here(kind: str) -> list[dict[str, Any]]:
        return driver_records(ha, kind)

    def cycles_go_on(count: int = 5) -> None:
        beyond = len(here("cycle")) + count
        run.until(lambda: len(here("cycle")) >= beyond, f"{beyond} cycles")

    def backup_after(cycle: int) -> None:
        run.until(lambda: any(one.cycle > cycle for one in backups.found()), f"a backup after cycle {cycle}")

    try:
        id = run.until(lambda: application_ids(run.text()), "an application")[0]
        run.until(lambda: here("backup") and len(here("cycle")) > 5, "a backup, and some cycles")

        # the active NameNode dies, and another takes its place
        first = ha.active()
        assert first is not None
        kept = max(one.cycle for one in backups.found())
        ha.kill(first)
        assert ha.active() is None
        second = ha.fail_over()
        after = len(here("cycle"))
        cycles_go_on()
        assert max(one.cycle for one in backups.found()) >= kept, "what was there is there"
        backup_after(after)
        assert sum(one["bytes"]["data_read"] for one in here("cycle")[after:]) > 0, "agents read from HDFS again"
        assert [one["event"] for one in here("agent") if one["event"] in ("lost", "replaced")] == []
        assert all(one["ok"] for one in here("backup"))
        ha.start(first)
        assert (ha.active(), ha.status()[first]) == (second, "ready")

        # rights are taken, and given back
        root.set_permission(f"{folder}/backups", "500")
        run.until(lambda: [one for one in here("backup") if not one["ok"]], "a backup that may not be written")
        cycles_go_on()
        root.set_permission(f"{folder}/backups", "700")
        backup_after(len(here("cycle")))
        denied = [one["reason"] for one in here("backup") if not one["ok"]]
        assert all("Permission denied: user=ann" in one for one in denied), denied

        end.touch()
        assert run.ended() == 0, run.text()[-4000:]
        summary, lines = json.loads(far.read("summary.json")), records(joined(far).decode())
    finally:
        run.close()
        end_applications(ha)
        far.close()
    assert (summary["attempts"], summary["agents_lost"], summary["agents_replaced"]) == (1, 0, 0)
    numbers = [one["cycle"] for one in lines if one["kind"] == "cycle"]
    assert numbers == list(range(summary["cycles"])), "no cycle was lost"
    assert sum(one["ok"] for one in lines if one["kind"] == "backup") == summary["backups"]
    told = say("backups", "verify", f"hdfs://{SERVICE}{folder}")
    assert len(told.splitlines()) >= 3, told
    assert application(ha, id)["finalStatus"] == "SUCCEEDED"
    nothing_lives(id)
