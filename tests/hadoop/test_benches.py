"""The benches that need a cluster, as small as they get: every key is there, and nothing is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpca.cli.dev.hadoop import Hadoop
from mpca.data.generate import generate
from mpca.data.ingest import Options, ingest
from mpca.storage import Location
from mpca.storage.webhdfs import WebHdfsStore
from tests.hadoop.support import MPCA, Submitted, end_applications

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def nothing_runs_on(hadoop: Hadoop) -> Iterator[None]:
    yield
    end_applications(hadoop)


def test_each_case_tells_what_it_promises(hadoop: Hadoop, folder: str, tmp_path: Path) -> None:
    """All at once, since no figure of theirs counts here."""
    small = ("--set", "cluster.executor_memory=512MiB", "--set", "cluster.start_timeout=400s")
    to = f"hdfs://{folder}"  # of the cluster that the configuration names
    generate(tmp_path / "source.tar", 80, 20, 0, 1)
    ingest(tmp_path / "source.tar", f"{hadoop.webhdfs_url}{folder}/set", Options(shorter_edge=256), 1)
    lines = {
        "data": ("--images", "80", "--turns", "1", "--source", "source.tar", "--ingested", f"{to}/set"),
        "submit": ("--agents", "1", "--turns", "1", "--jars-on-nodes", *small),
        "backup": ("--to", to, "--size", "1MiB", "--turns", "1"),
        "reads": ("--at", to, "--size", "9MiB", "--turns", "1"),
    }
    running = {
        name: Submitted(*MPCA, "bench", name, *words, "--json", cwd=tmp_path, log=tmp_path / name)
        for name, words in lines.items()
    }
    try:
        codes = {name: one.ended() for name, one in running.items()}
        said = {name: one.text() for name, one in running.items()}
    finally:
        for one in running.values():
            one.close()
    assert codes == dict.fromkeys(lines, 0), said
    data, submit, backup, reads = (
        json.loads(next(line for line in said[name].splitlines() if line[:1] == "{")) for name in lines
    )

    assert data["from"] == "hdfs"
    assert data["stream_ratio"] == pytest.approx(data["stream_images_s"] / data["memory_images_s"])

    assert submit["submit_ratio"] == pytest.approx(submit["first_step_s"] / submit["executors_alone_s"])
    assert list(submit["stages_s"]) == ["submit", "session", "executors", "agents", "first_step"]
    assert sum(submit["stages_s"].values()) == pytest.approx(submit["first_step_s"])
    assert min(submit["stages_s"].values()) >= 0

    assert backup["backup_bytes"] > 2 * (1 << 20), "model and trajectory"
    assert backup["backup_s_per_100mib"] > 0
    assert backup["cycle_rate_ratio"] == pytest.approx(backup["cycle_rate"]["during"] / backup["cycle_rate"]["without"])

    assert reads["bytes"] == 9 << 20
    assert reads["reads_ratio"] == pytest.approx(reads["jvm_mb_s"] / reads["webhdfs_mb_s"])
    assert reads["jvm_cpu_s_per_gb"] > 0
    assert reads["webhdfs_cpu_s_per_gb"] > 0
    store = WebHdfsStore(Location.parse(hadoop.webhdfs_url + folder))
    assert store.names("") == ["set"], "what was written is gone"
    store.close()
