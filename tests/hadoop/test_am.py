"""Runs in cluster mode: the driver is a container, YARN starts it again, and what it was lies on HDFS."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mpca.cli.dev.hadoop import Hadoop
from mpca.spark.yarn.client import application_ids
from mpca.storage import Location, Store, joined
from mpca.storage.webhdfs import WebHdfsStore
from tests.hadoop.support import (
    GENTLE,
    ROOT,
    application,
    end_applications,
    jvms,
    mapped,
    nothing_lives,
    only,
    records,
    submit,
)

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
MASTER = "org.apache.spark.deploy.yarn.ApplicationMaster"
#: An interpreter that works for the driver, whose container is each attempt's first, and for agents from the second attempt on.
NO_AGENTS_AT_FIRST = """\
#!/bin/sh
case "$CONTAINER_ID" in
  *_000001) ;;
  *_01_*) exit 7 ;;
esac
exec {python} "$@"
"""


@pytest.fixture(autouse=True)
def nothing_runs_on(hadoop: Hadoop) -> Iterator[None]:
    yield
    end_applications(hadoop)


@pytest.fixture
def nothing_kept() -> Iterator[None]:
    """A driver whose JVM is killed keeps what it cannot put on HDFS any more, and says where; here nobody wants it."""
    folder = Path(tempfile.gettempdir())
    before = set(folder.glob("mpca-kept-*"))
    yield
    for one in set(folder.glob("mpca-kept-*")) - before:
        shutil.rmtree(one)


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


@pytest.mark.usefixtures("nothing_kept")
def test_a_killed_driver_comes_back_and_the_run_reaches_its_target(hadoop: Hadoop, tmp_path: Path) -> None:
    """In the folder that a run has when nobody names one."""
    run = submit(
        tmp_path,
        "--deploy-mode",
        "cluster",
        sets=(
            "objectives.target_error=0.08",
            "objectives.max_time=20min",
            "optimizer.lr=3e-5",
            "backup.interval=1s",
        ),
    )
    far = None
    try:
        id = run.until(lambda: application_ids(run.text()), "an application")[0]
        folder = f"/user/{getpass.getuser()}/mpca/runs/digits-{id}"
        far = WebHdfsStore(Location.parse(hadoop.webhdfs_url + folder))
        run.until(lambda: [one for one in backed_up(far) if one > 1], "a backup of a few cycles")
        (master,) = jvms(id, MASTER)
        os.kill(master, signal.SIGKILL)
        assert run.ended() == 0, run.text()[-4000:]
        summary = json.loads(far.read("summary.json"))
        lines = records(joined(far).decode())
    finally:
        run.close()
        if far is not None:
            far.close()
    place, where, report, model = run.said().splitlines()[-4:]
    assert place == f"run folder {hadoop.hdfs_url}{folder}"
    assert where.startswith(f"reached: error {100 * summary['final_error']:.2f} %, {summary['cycles']} cycles, ")
    assert report == f"report {hadoop.hdfs_url}{folder}/report.html"
    assert model == f"model  {hadoop.hdfs_url}{folder}/model.safetensors"
    assert summary["status"] == "reached"
    assert summary["final_error"] <= 0.08
    assert summary["attempts"] == 2
    assert summary["resumed_from"].startswith(f"{hadoop.hdfs_url}{folder}/backups/")
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


def test_what_the_surroundings_end_is_tried_again_memory_is_told_and_a_users_mistake_is_final(
    hadoop: Hadoop, folder: str, far: Store, tmp_path: Path
) -> None:
    """Three attempts: no agent starts; one is killed for memory and then raises; the third does not begin."""
    script = ROOT / "tests" / "hadoop" / "programs" / "greedy.py"
    python = tmp_path / "python"
    python.write_text(NO_AGENTS_AT_FIRST.format(python=sys.executable))
    python.chmod(0o755)
    run = submit(
        tmp_path,
        *("--deploy-mode", "cluster", "--train", str(script)),
        str(tmp_path / "been-here"),
        sets=(
            f"run.dir={hadoop.hdfs_url}{folder}",
            f"cluster.python={python}",
            "objectives.max_time=10min",
            "spark.yarn.maxAppAttempts=3",
        ),
    )
    try:
        assert run.ended() == 1, run.text()[-4000:]
    finally:
        run.close()
    assert "the user's own mistake" in run.text().splitlines()[-1]
    id = only(run.text())
    lines = records(joined(far).decode())
    began = [at for at, one in enumerate(lines) if one["kind"] == "run"]
    assert [lines[at]["attempt"] for at in began] == [1, 2], "the third does not begin"
    ended = [one for one in lines if one["kind"] == "end"]
    assert "cannot start: exit code 7" in ended[0]["reason"]
    assert "the user's own mistake" in ended[1]["reason"]
    lost = next(one for one in lines[began[1] :] if one["kind"] == "agent" and one["event"] == "lost")
    assert lost["index"] == 1
    for word in (
        "killed for physical memory: peak ",
        ", limit 2.5 GB",
        "spark.executor.memoryOverhead",
        "cluster.agent_memory",
    ):
        assert word in lost["reason"]
    summary = json.loads(far.read("summary.json"))
    assert (summary["status"], summary["final"]) == ("failed", True)
    assert "the user's own mistake" in summary["reason"]
    assert (summary["agents_lost"], summary["attempts"]) == (1, 2)
    assert attempts(hadoop, id) == 3, "YARN tried again"
    nothing_lives(id)


def test_an_application_that_is_killed_leaves_nothing_and_its_submitter_says_so(
    hadoop: Hadoop, folder: str, tmp_path: Path
) -> None:
    """By Ctrl-C of a submitter in cluster mode, and by YARN at a person's word, in cluster and in client mode."""
    staging = WebHdfsStore(Location.parse(f"{hadoop.webhdfs_url}/user/{getpass.getuser()}/.sparkStaging"))
    near = tmp_path / "near"
    places = {"ctrl-c": f"{hadoop.hdfs_url}{folder}/a", "cluster": f"{hadoop.hdfs_url}{folder}/b", "client": str(near)}
    runs = {}
    try:
        for name, place in places.items():
            mode = "client" if name == "client" else "cluster"
            sets = ("cluster.agents=1", f"run.dir={place}", "objectives.max_time=20min")
            runs[name] = submit(tmp_path, "--deploy-mode", mode, *GENTLE, str(tmp_path / "never"), sets=sets)
        for name, run in runs.items():
            seen = places[name].replace(hadoop.hdfs_url, hadoop.webhdfs_url)
            run.until(lambda seen=seen: len(records(ledger(seen), "cycle")) > 3, f"cycles of {name}")
        ids = {name: only(run.text()) for name, run in runs.items()}
        assert set(ids.values()) <= set(staging.names(""))
        for id in ids.values():
            assert mapped(id), "agents map what they exchange"
        runs["ctrl-c"].process.send_signal(signal.SIGINT)
        end_applications(hadoop, ids["cluster"], ids["client"])  # as `yarn application -kill` does
        codes = {name: run.ended(120) for name, run in runs.items()}
    finally:
        for run in runs.values():
            run.close()
    assert codes == {"ctrl-c": 130, "cluster": 143, "client": 1}
    assert runs["cluster"].text().splitlines()[-1].startswith(f"mpca: {ids['cluster']} KILLED: ")
    assert f"{ids['client']} was killed, or its application master was lost" in runs["client"].text().splitlines()[-1]
    for id in ids.values():
        assert application(hadoop, id)["state"] == "KILLED"
        nothing_lives(id)
        assert not mapped(id)
    assert not set(ids.values()) & set(staging.names(""))
    staging.close()
    summary = json.loads((near / "summary.json").read_text())
    assert (summary["status"], summary["final"]) == ("failed", False)
    assert (near / "model.safetensors").exists(), "what the driver held is saved"


def ledger(place: str) -> str:
    """What of a run's records can be read while it goes on, from a folder or from HDFS."""
    if "://" not in place:
        path = Path(place) / "records.jsonl"
        return path.read_text() if path.exists() else ""
    with closing(WebHdfsStore(Location.parse(place))) as store:
        return joined(store).decode() if store.exists("") else ""
