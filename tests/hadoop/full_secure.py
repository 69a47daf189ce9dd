"""More runs in a realm: `make test-secure` has them, and CI has not. The others: test_secure.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpca.cli.bench.cases.encryption import reads
from mpca.cli.dev.hadoop import Hadoop
from mpca.cli.dev.realm import Lives
from mpca.environment import child_environment
from mpca.spark.jvm.hadoop import spark_home
from mpca.storage import Location
from mpca.storage.opening import open_store
from tests.hadoop.support import DIGITS, MPCA, submit
from tests.hadoop.test_secure import CHECKOUT, alice, cluster_in_realm, secured_login

__all__ = ["alice"]  # a fixture

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    """Its tokens are good for as long as Hadoop's own: a session with a ticket alone has no others."""
    with cluster_in_realm(tmp_path_factory.mktemp("secured"), Lives()) as cluster:
        yield cluster


def test_a_run_in_client_mode_with_a_ticket(secured: Hadoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder and backups lie on HDFS."""
    for name, value in secured_login(secured, "alice").items():
        monkeypatch.setenv(name, value)
    run_dir = f"{secured.hdfs_url}/user/alice/client"
    run = submit(tmp_path, sets=(f"run.dir={run_dir}", "backup.interval=5s", "objectives.max_time=20s", *CHECKOUT))
    try:
        assert run.ended() == 0, run.text()[-4000:]
    finally:
        run.close()
    store = open_store(Location.parse(run_dir))
    assert json.loads(store.read("summary.json"))["agents_lost"] == 0
    assert store.names("backups")


def test_a_user_without_rights_is_refused_before_a_container_is_asked_for(secured: Hadoop, tmp_path: Path) -> None:
    realm = secured.setup.realm
    assert realm is not None
    login = ("spark.kerberos.principal=mallory@MPCA.DEV", f"spark.kerberos.keytab={realm.keytab('mallory')}")
    run = submit(tmp_path, "--deploy-mode", "cluster", sets=(f"run.dir={secured.hdfs_url}/user/alice/hers", *login))
    try:
        assert run.ended() == 2
    finally:
        run.close()
    assert "run.dir is not writable" in run.text()
    assert "user=mallory" in run.text()


def test_a_data_set_elsewhere_is_refused_unless_containers_get_a_token_for_it(
    secured: Hadoop, alice: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [*MPCA, "submit", str(DIGITS), "--jars-on-nodes", "--set", "backup.path=hdfs://elsewhere:8020/backups"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=child_environment(**alice, HADOOP_USER_NAME="bob"),
    )
    assert done.returncode == 2, done.stderr
    assert "set spark.kerberos.access.hadoopFileSystems=hdfs://elsewhere:8020" in done.stderr
    assert "warning: HADOOP_USER_NAME = bob counts for nothing here" in done.stdout


def test_what_protection_costs_is_told_for_each_that_a_client_may_ask_for(
    secured: Hadoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in secured_login(secured, "alice").items():
        monkeypatch.setenv(name, value)
    told = reads(f"{secured.hdfs_url}/user/alice/bench", 64 << 20, turns=3)
    print(json.dumps(told), os.getloadavg())
    assert (list(told["reads"]), told["refused"]) == (["authentication", "integrity", "privacy", "privacy_aes"], [])
    cpu = {way: one["jvm_cpu_s_per_gb"] for way, one in told["reads_ratios"].items()}
    assert cpu["privacy"] > 2 * cpu["privacy_aes"], "the DataNodes gave each client what it asked for"


def test_rows_of_a_dataframe_go_to_hdfs_by_a_containers_token(secured: Hadoop, tmp_path: Path) -> None:
    target = f"{secured.hdfs_url}/user/alice/rows"
    program = tmp_path / "rows.py"
    program.write_text(
        "import sys\nfrom pyspark.sql import SparkSession\nimport mpca\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "rows = spark.createDataFrame([([float(i), 1.0], i % 2) for i in range(40)], ['features', 'label'])\n"
        "print(mpca.ingest_dataframe(rows, sys.argv[1], withheld=2).records)\nspark.stop()\n"
    )
    home = spark_home()
    sets = (*CHECKOUT, f"spark.executorEnv.REQUESTS_CA_BUNDLE={secured.env()['REQUESTS_CA_BUNDLE']}")
    sets += (f"spark.yarn.jars=local:{home.path}/jars/*", f"spark.pyspark.python={sys.executable}")
    words = [word for one in sets for word in ("--conf", one)]
    done = subprocess.run(
        [str(home.submit), "--master", "yarn", "--num-executors", "1", *words, str(program), target],
        capture_output=True,
        text=True,
        env=child_environment(SPARK_HOME=str(home.path), **secured_login(secured, "alice")),
        timeout=600,
    )
    said = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("\tat "))
    assert done.returncode == 0, said[-8000:]
    assert "{'train': 36, 'validation': 4}" in done.stdout
