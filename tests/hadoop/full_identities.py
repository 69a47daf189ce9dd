"""Whose a run is in a realm, where that is not plain from the ticket: `make test-secure` has this, and CI has not.

A service submits for alice (``--proxy-user``; core-site.xml lets livy do that for alice and bob), and auth_to_local gives
alice a second principal. In both cases all files of the run are alice's.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mpca.cli.dev.hadoop import Hadoop
from tests.hadoop.support import DIGITS, MPCA, Submitted, application, only, program, submit
from tests.hadoop.test_secure import CHECKOUT, SMALL_NET, say, secured, secured_login

__all__ = ["secured"]  # a fixture

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SHORT = ("backup.interval=5s", "objectives.max_time=20s", *CHECKOUT)


@pytest.fixture
def livy(secured: Hadoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ticket of the service, in the environment of this process."""
    for name, value in secured_login(secured, "livy").items():
        monkeypatch.setenv(name, value)


def below(cluster: Hadoop, folder: str) -> dict[str, str]:
    """The owner of every file and folder below one of HDFS, by path."""
    realm, found = cluster.setup.realm, {}
    assert realm is not None
    there = f"{cluster.setup.hdfs_web('namenode')}/webhdfs/v1{folder}?op=LISTSTATUS"
    for one in json.loads(realm.fetch(there))["FileStatuses"]["FileStatus"]:
        path = f"{folder}/{one['pathSuffix']}"
        found[path] = one["owner"]
        if one["type"] == "DIRECTORY":
            found |= below(cluster, path)
    return found


def summary(cluster: Hadoop, folder: str) -> dict[str, Any]:
    realm = cluster.setup.realm
    assert realm is not None
    text = realm.fetch(f"{cluster.setup.hdfs_web('namenode')}/webhdfs/v1{folder}/summary.json?op=OPEN", "hdfs", "-L")
    found: dict[str, Any] = json.loads(text)
    return found


def whole(cluster: Hadoop, run: Submitted, folder: str) -> None:
    """The run ended well, is alice's to YARN, and so is each of its files, backups among them."""
    try:
        assert run.ended() == 0, run.text()[-4000:]
        id = only(run.text())
    finally:
        run.close()
    assert application(cluster, id)["user"] == "alice"
    owners = below(cluster, folder)
    names = {path.rpartition("/")[2] for path in owners}
    assert names >= {"records.jsonl", "summary.json", "model.safetensors", "manifest.json"}, "the last is a backup's"
    assert set(owners.values()) == {"alice"}, owners
    assert summary(cluster, folder)["agents_lost"] == 0


@pytest.mark.usefixtures("livy")
def test_a_service_trains_for_alice_in_client_mode_and_everything_is_hers(secured: Hadoop, tmp_path: Path) -> None:
    """The data set too, which was brought by HADOOP_PROXY_USER, and which the run streams and evaluates on."""
    source, home = tmp_path / "source.tar", f"{secured.hdfs_url}/user/alice"
    assert say("generate", "40", str(source), "--classes", "4")[0] == 0
    ingest = ("ingest", str(source), f"{home}/for-her", "--withheld", "2", "--shorter-edge", "96")
    code, _, err = say(*ingest, HADOOP_PROXY_USER="alice")
    assert code == 0, err
    assert set(below(secured, "/user/alice/for-her").values()) == {"alice"}
    conf = tmp_path / "small.toml"
    conf.write_text(SMALL_NET)
    sets = (f"data.path={home}/for-her", f"run.dir={home}/by-livy", *SHORT)
    run = submit(tmp_path, "--proxy-user", "alice", sets=sets, conf=conf)
    whole(secured, run, "/user/alice/by-livy")
    assert re.search(r"this run ends at .*: livy@MPCA\.DEV got them for another user, and so Spark gets no new", run.text())
    assert summary(secured, "/user/alice/by-livy")["evaluations"] > 0


@pytest.mark.usefixtures("livy")
def test_a_service_trains_for_alice_in_cluster_mode_in_her_own_folder(secured: Hadoop, tmp_path: Path) -> None:
    run = submit(tmp_path, "--deploy-mode", "cluster", "--proxy-user", "alice", sets=SHORT)
    run.ended()
    id = only(run.text())
    whole(secured, run, f"/user/alice/mpca/runs/digits-{id}")
    logs = secured.setup.data.glob(f"nodemanager*/logs/{id}/*_01_000001/std*")
    assert "livy@MPCA.DEV got them for another user" in "".join(one.read_text(errors="replace") for one in logs)


@pytest.mark.usefixtures("livy")
def test_a_program_of_ones_own_for_alice(secured: Hadoop, tmp_path: Path) -> None:
    """By spark-submit itself; what would be written as livy in part is refused."""
    home = f"{secured.hdfs_url}/user/alice"
    run = program(tmp_path, "proxied.py", f"{home}/rows", f"{home}/own", sets=CHECKOUT, proxy_user="alice")
    whole(secured, run, "/user/alice/own")
    assert f"refused: {home}/rows: this driver would write it by the service's own ticket, and not as alice" in run.said()
    web = home.replace(secured.hdfs_url, secured.webhdfs_url)
    assert f"refused: run_dir = '{web}/web': would be reached by the service's own ticket, and not as alice" in run.said()


@pytest.mark.usefixtures("livy")
def test_who_the_service_may_not_act_for_is_refused_before_anything_is_submitted(secured: Hadoop, tmp_path: Path) -> None:
    why = "livy@MPCA.DEV is not allowed to impersonate mallory; the cluster lets a service act for others by hadoop.proxyuser."
    run = Submitted(*MPCA, "submit", str(DIGITS), "--proxy-user", "mallory", cwd=tmp_path, log=tmp_path / "log")
    try:
        assert run.ended() == 2
    finally:
        run.close()
    assert why in run.text()
    assert "application_" not in run.text()
    code, out, _ = say("doctor", HADOOP_PROXY_USER="mallory")
    assert (code, why in out) == (1, True), out
    code, out, _ = say("doctor", HADOOP_PROXY_USER="alice")
    assert code == 0, out
    assert "alice (for whom livy acts) by Kerberos" in out
    assert f"written, renamed and read in {secured.hdfs_url}/user/alice" in out


def test_a_principal_that_the_clusters_rules_make_alice_is_alice(secured: Hadoop, tmp_path: Path) -> None:
    """With a keytab, and without saying where: her folder is found by the name that Hadoop gives."""
    realm = secured.setup.realm
    assert realm is not None
    code, out, _ = say("doctor", **secured_login(secured, "alice-svc"))
    assert code == 0, out
    assert re.search(r"login +alice by Kerberos", out)
    login = ("spark.kerberos.principal=alice-svc@MPCA.DEV", f"spark.kerberos.keytab={realm.keytab('alice-svc')}")
    run = submit(tmp_path, "--deploy-mode", "cluster", sets=(*SHORT, *login))
    run.ended()
    whole(secured, run, f"/user/alice/mpca/runs/digits-{only(run.text())}")
