"""A run on a cluster of containers with Kerberos, where each daemon has a principal of its host's name: it loses a worker and
its driver, and others get nothing of it. `make test-docker-full` has this, and CI has not."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from dockerized.cluster import Cluster

from mpca.cli.dev.realm import Lives, Realm
from tests.docker.support import PATIENCE_S, cluster_up, nothing_runs_on_workers, submit, whole
from tests.hadoop.support import only, records

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1500)]

#: Spark gets new tokens after 90 s, and nobody renews the others; none lives for more than four minutes.
LIVES = Lives(token_renewal_s=120, token_s=240)
HOME = "hdfs://namenode:8020/user/alice"
#: Prints a file of a run's folder, or its records so far, which lie in parts while it runs.
_READ = """
import sys
from mpca.storage import Location, joined
from mpca.storage.opening import open_store
store = open_store(Location.parse(sys.argv[1]), patience_s=5.0)
try:
    sys.stdout.buffer.write(store.read(sys.argv[2]) if len(sys.argv) > 2 else joined(store))
except OSError as error:  # it is not there yet, or a busy HDFS does not answer
    print(error, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Six hosts in a realm."""
    with cluster_up(tmp_path_factory, LIVES) as one:
        yield one


@pytest.fixture
def realm(cluster: Cluster) -> Realm:
    found = cluster.realm
    assert found is not None
    return found


def as_user(cluster: Cluster, user: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in the client, with a ticket of this user's."""
    assert cluster.realm is not None
    login = f'kinit -k -t {cluster.realm.keytab(user)} {user} && exec "$@"'
    return cluster.run("client", "env", f"KRB5CCNAME=/tmp/{user}.cc", "bash", "-c", login, user, *words)


def read(cluster: Cluster, *file: str) -> str:
    """A file of the run's folder, or its records; nothing if they are not there yet."""
    done = as_user(cluster, "alice", "python", "-c", _READ, f"{HOME}/run", *file)
    assert done.returncode == 0, done.stderr
    return done.stdout


def mpca(*words: str) -> tuple[str, ...]:
    return ("python", "-m", "mpca.cli", *words)


def test_a_run_in_a_realm_loses_a_worker_and_its_driver(cluster: Cluster, realm: Realm) -> None:
    def ledger(kind: str, **wanted: object) -> list[dict[str, Any]]:
        return [one for one in records(read(cluster), kind) if all(one[key] == value for key, value in wanted.items())]

    def full(beyond: int = -1) -> list[dict[str, Any]]:
        return [one for one in ledger("cycle") if one["cycle"] > beyond and len(one["contributors"]) == 2]

    def newest() -> int:
        number: int = run.until(lambda: ledger("cycle"), "cycles", PATIENCE_S)[-1]["cycle"]
        return number

    sets = (
        *(
            f"run.dir={HOME}/run",
            "backup.interval=10s",
            "cluster.agents=2",
            "objectives.target_error=0",
            "objectives.max_time=10m",
        ),
        *("spark.kerberos.principal=alice@MPCA.DEV", f"spark.kerberos.keytab={realm.keytab('alice')}"),
    )
    run = submit(cluster, "realm", *sets, words=("--deploy-mode", "cluster"))
    try:
        run.until(lambda: len(full()) > 5, "cycles of both agents", PATIENCE_S)
        id = only(run.text())

        def master() -> str:
            application = cluster.resourcemanager(f"apps/{id}")["app"]
            return str(application["amHostHttpAddress"]).partition(":")[0]

        started = {one["index"]: one for one in ledger("agent", event="started")}
        lost = next(one for one in started.values() if one["host"] != master())
        cluster.kill(lost["host"])
        run.until(lambda: cluster.nodes()[lost["host"]] == "LOST", "YARN gives the worker up", PATIENCE_S)
        cluster.start(lost["host"])  # beside the driver there is no room for the agent
        run.until(lambda: ledger("agent", event="replaced", index=lost["index"]), "a new agent", PATIENCE_S)
        at = newest()
        run.until(lambda: full(at), "a cycle of both after a worker was killed", PATIENCE_S)

        run.until(lambda: [one for one in ledger("backup") if one["ok"]], "a backup", PATIENCE_S)
        killed = cluster.run(master(), "pkill", "-KILL", "-f", "java.*org.apache.spark.deploy.yarn.ApplicationMaster")
        assert killed.returncode == 0
        run.until(lambda: len(ledger("run")) == 2, "the next attempt", PATIENCE_S)
        at = newest()
        run.until(lambda: full(at), "a cycle of both with the next driver", PATIENCE_S)
        assert run.ended(3 * PATIENCE_S) == 0, run.text()[-3000:]
    finally:
        run.close()
    summary = json.loads(read(cluster, "summary.json"))
    assert (summary["status"], summary["attempts"]) == ("max_time", 2)
    lines = records(read(cluster))
    second = next(at for at, one in enumerate(lines) if one["kind"] == "run" and one["attempt"] == 2)
    assert lines[second]["resumed_from"].startswith(f"{HOME}/run/backups/")
    cycles = [one for one in lines[second:] if one["kind"] == "cycle"]
    whole(cycles, summary, cycles[0]["cycle"])
    nothing_runs_on_workers(cluster)


def test_its_owner_reads_its_backups_from_outside_and_others_do_not(cluster: Cluster) -> None:
    verify = mpca("backups", "verify", f"{HOME}/run/backups")
    done = as_user(cluster, "alice", *verify)
    assert done.returncode == 0, done.stderr
    for other in ("bob", "mallory"):
        done = as_user(cluster, other, *verify)
        assert done.returncode != 0
        assert re.search(rf"Permission denied.*{other}|{other}.*Permission denied", done.stderr), done.stderr
        assert "Traceback" not in done.stderr
    done = cluster.run("client", *verify)
    assert done.returncode != 0
    assert "kinit" in done.stderr
