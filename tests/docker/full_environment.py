"""A packed environment, torch and all, trains on workers that have neither our Python nor our checkout.

Collected only when the file is named: ``make test-docker-full``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from dockerized.cluster import Cluster

from tests.docker.support import Run, cluster_up, nothing_runs_on_workers, whole

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(3000)]
MOST_S = 1800.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Six hosts, of which the workers have Java and Hadoop alone."""
    with cluster_up(tmp_path_factory, bare_workers=True) as one:
        yield one


def test_a_packed_environment_with_torch_trains_where_the_original_is_not(cluster: Cluster) -> None:
    packed = cluster.run(
        "client", "python", "-m", "mpca.cli", "pack", str(cluster.work / "environment.tar.gz"), timeout_s=MOST_S
    )
    assert packed.returncode == 0, packed.stdout + packed.stderr
    print(packed.stdout)
    run = Run(
        cluster,
        "packed",
        *("objectives.target_error=0.1", "objectives.max_time=20min", "cluster.start_timeout=25min"),
        "spark.yarn.submit.file.replication=1",  # one of 4 GB is enough, beside what each worker unpacks
        words=("--archives", f"{cluster.work}/environment.tar.gz#environment"),
        jars_on_nodes=False,
    )
    try:
        assert run.submitted.ended(MOST_S) == 0, run.submitted.text()[-4000:]
    finally:
        run.submitted.close()
    summary = json.loads((run.folder / "summary.json").read_text())
    print("seconds from submit:", summary["submit_seconds"])
    assert summary["status"] == "reached"
    whole(run.seen("cycle"), summary)
    nothing_runs_on_workers(cluster)
