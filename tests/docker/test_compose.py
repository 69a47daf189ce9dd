"""`docker/up` and `docker/down` as a person uses them, with the compose file, and a run in between."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from dockerized.cluster import HOSTS, ROOT, Cluster
from dockerized.engine import Engine
from dockerized.machine import Machine

from mpca.environment import child_environment
from tests.docker.support import Run, nothing_beyond, nothing_runs_on_workers, whole

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900)]
NAME = "mpca-test-compose"


def script(name: str, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = child_environment(XDG_STATE_HOME=str(home))
    command = [str(ROOT / "docker" / name), "--name", NAME, *words]
    return subprocess.run(command, env=env, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """State of the user who runs the scripts."""
    yield tmp_path
    script("down", tmp_path)


def test_a_run_on_the_cluster_of_the_compose_file_and_nothing_is_left_of_it(home: Path) -> None:
    before = Machine.now()
    up = script("up", home, "--compose")
    assert up.returncode == 0, up.stdout + up.stderr
    print(up.stdout)
    assert "compose.yaml up --detach" in up.stdout, "it says what it runs"
    engine = Engine.running()
    assert engine is not None
    cluster = Cluster(NAME, engine, home / "mpca" / "docker" / NAME)
    assert set(cluster.running()) == set(HOSTS)
    assert set(cluster.nodes().values()) == {"RUNNING"}
    again = script("up", home)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "6 hosts were up already" in again.stdout

    run = Run(cluster, "composed", "objectives.target_error=0.1", "objectives.max_time=10min")
    try:
        assert run.submitted.ended() == 0, run.submitted.text()[-4000:]
    finally:
        run.submitted.close()
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["status"] == "reached"
    assert summary["final_error"] <= 0.1
    whole(run.seen("cycle"), summary)
    assert len(set(run.places().values())) == 2, "agents on two workers"
    told = run.application()
    assert (told["state"], told["finalStatus"]) == ("FINISHED", "SUCCEEDED")
    nothing_runs_on_workers(cluster)

    for _ in range(2):
        down = script("down", home)
        assert down.returncode == 0, down.stdout + down.stderr
    nothing_beyond(before)
    assert not cluster.folder.exists()
