"""An archive of `mpca pack`, on YARN: its interpreter runs a task, and brings mpca with it."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpca.cli.dev.hadoop import Hadoop
from tests.hadoop.support import DIGITS, MPCA, ROOT, SMALL, Submitted, end_applications

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
#: What a plain task does not need, so that packing takes seconds.
WITHOUT = ("torch", "torchvision", "scikit-learn", "pyspark", "rich", "hdfs")


@pytest.fixture(autouse=True)
def nothing_runs_on(hadoop: Hadoop) -> Iterator[None]:
    yield
    end_applications(hadoop)


def test_a_packed_environment_runs_a_task(hadoop: Hadoop, tmp_path: Path) -> None:
    archive = tmp_path / "env.tar.gz"
    subprocess.run([*MPCA, "pack", str(archive), *(word for name in WITHOUT for word in ("--without", name))], check=True)
    sets = [word for one in SMALL for word in ("--set", one)]
    dry = subprocess.run(
        [*MPCA, "submit", str(DIGITS), "--jars-on-nodes", "--dry-run", "--archives", f"{archive}#environment", *sets],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    line = shlex.split(dry.stdout.splitlines()[-1])
    program = str(ROOT / "tests" / "hadoop" / "programs" / "where.py")
    # One executor is enough, and plain tasks need no plug-in.
    alone = ["--conf", "spark.executor.instances=1", "--conf", "spark.plugins="]
    started = Submitted(*line[:-2], *alone, program, cwd=tmp_path, log=tmp_path / "log")
    try:
        assert started.ended() == 0, started.text()[-4000:]
    finally:
        started.close()
    found = [text.split(": ")[1] for text in started.said().splitlines() if text.startswith("there: ")]
    assert len(found) == 3, started.text()[-4000:]
    for path in found:
        assert "/environment/" in path
        assert "container_" in path or "filecache" in path
