"""Kerberos: a Hadoop in a realm of its own, where everybody shows a ticket and nobody gets a page in plain; and mpca in it.

HDFS' tokens end after two minutes here, so a run of three outlives them. More: full_secure.py, full_doctor.py, full_tokens.py.
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from mpca.cli.dev.artifacts import java_home
from mpca.cli.dev.daemons import Daemons
from mpca.cli.dev.hadoop import Hadoop
from mpca.cli.dev.readiness import wait_until
from mpca.cli.dev.realm import Lives, Realm
from mpca.environment import child_environment
from mpca.errors import EnvironmentRefused
from tests.hadoop.support import MPCA, ROOT, only, records, submit

pytestmark = [pytest.mark.hadoop, pytest.mark.timeout(900)]

#: What runs in containers is this checkout too.
CHECKOUT = tuple(f"spark.{one}.PYTHONPATH={ROOT}" for one in ("executorEnv", "yarn.appMasterEnv"))
SMALL_NET = """
[model]
name = "resnet20"
classes = 4
[data]
name = "imagenet"
crop = 64
shorter_edge = 72
read_ahead = "8MiB"
batch_size = 8
[objectives]
target_error = 0.0
evaluate_every = "2s"
"""
#: Every minute somebody must renew a token; after two it is good for nothing.
TOKEN_S = 120


@contextmanager
def cluster_in_realm(folder: Path, lives: Lives, ha: bool = False) -> Iterator[Hadoop]:
    """A cluster with Kerberos, and the environment of this process set so that Spark finds it. Nobody has a ticket."""
    cluster = Hadoop(folder, print)
    try:
        cluster.up(ha, lives)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in cluster.env().items():
                patch.setenv(name, value)
            patch.setenv("KRB5CCNAME", f"FILE:{cluster.folder}/nobody.cc")
            yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    with cluster_in_realm(tmp_path_factory.mktemp("secured"), Lives(token_renewal_s=TOKEN_S // 2, token_s=TOKEN_S)) as cluster:
        yield cluster


def secured_login(cluster: Hadoop, user: str) -> dict[str, str]:
    realm = cluster.setup.realm
    assert realm is not None
    return realm.login(user, cluster.folder / f"{user}-test.cc")


def bring_photographs(cluster: Hadoop, source: Path) -> None:
    """A small set of images of four classes, generated in the folder `source`, in alice's folder ``photographs``."""
    login, target = child_environment(**secured_login(cluster, "alice")), f"{cluster.hdfs_url}/user/alice/photographs"
    subprocess.run([*MPCA, "generate", "40", str(source / "source.tar"), "--classes", "4"], check=True)
    ingest = ("ingest", str(source / "source.tar"), target, "--withheld", "2", "--shorter-edge", "96")
    subprocess.run([*MPCA, *ingest], check=True, env=login)


@pytest.fixture
def alice(secured: Hadoop) -> dict[str, str]:
    """The environment of alice's commands."""
    return secured_login(secured, "alice")


def test_everybody_shows_a_ticket_and_has_only_what_is_theirs(secured: Hadoop) -> None:
    realm, web = secured.setup.realm, secured.setup.hdfs_web("namenode")
    assert realm is not None
    assert set(secured.status().values()) == {"ready"}
    file = f"{web}/webhdfs/v1/user/alice/a"
    realm.fetch(f"{file}?op=CREATE", "alice", "-L", "-X", "PUT", "--data-binary", "hers")
    assert realm.fetch(f"{file}?op=OPEN", "alice", "-L") == "hers"
    for other in ("bob", "mallory"):
        with pytest.raises(OSError, match=f"Permission denied: user={other}"):
            realm.fetch(f"{file}?op=OPEN", other, "-L")
    nodes = secured.setup.port("nodemanager1", "nodemanager_http")
    pages = (f"{file}?op=OPEN&user.name=alice", f"{web}/jmx", f"{secured.resourcemanager_url}/ws/v1/cluster/apps")
    for page in (*pages, f"http://127.0.0.2:{nodes}/ws/v1/node/info"):
        command = ["curl", "-s", "--cacert", str(realm.certificate), "-o", "/dev/null", "-w", "%{http_code}", page]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "401", page
    plain = subprocess.run(["curl", "-sS", f"http{web.removeprefix('https')}/"], capture_output=True, text=True)
    assert plain.returncode != 0, "the same port speaks no plain HTTP"


def test_a_killed_kdc_is_seen_and_comes_back_alone(secured: Hadoop) -> None:
    before = {name: secured.pid(name) for name in secured.setup.daemons}
    secured.kill("kdc")
    assert secured.status()["kdc"] == "down"
    secured.up()
    assert {name for name in before if secured.pid(name) != before[name]} == {"kdc"}


def test_a_cluster_keeps_the_kind_that_it_was_made(tmp_path: Path) -> None:
    plain = Hadoop(tmp_path)
    (tmp_path / "cluster.json").write_text('{"hadoop": "3.3.6", "ports": {}}')
    with pytest.raises(EnvironmentRefused, match=r"has no Kerberos.*name another by --dir"):
        plain.up(secure=Lives())


def test_half_a_realm_is_made_anew(tmp_path: Path) -> None:
    realm = Realm(tmp_path / "realm", 1088, tmp_path / "kdc.log", Lives())
    realm.folder.mkdir()
    realm.keytab("alice").write_text("half")
    (realm.folder / "principal").write_text("of a database")
    assert not realm.made
    realm.make(java_home(), ("127.0.0.1",))
    assert realm.made
    assert realm.keytab("alice").read_bytes()[:1] == b"\5", "a keytab"


def test_nothing_of_a_realm_is_left_when_up_was_killed(tmp_path: Path) -> None:
    cluster = Hadoop(tmp_path / "cluster")
    command = [*MPCA, "dev", "hadoop", "up", "--secure", "--dir", str(cluster.folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as up:
        assert wait_until(
            lambda: (cluster.folder / "conf" / "ssl-server.xml").exists() and "kdc" in Daemons(cluster.setup).find(), 60
        )
        kdc = cluster.pid("kdc")
        up.kill()
    cluster.down()
    assert not cluster.folder.exists()
    assert not psutil.pid_exists(kdc) or psutil.Process(kdc).status() == psutil.STATUS_ZOMBIE


# ---- commands, outside of a JVM ----


def say(*words: str, **env: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    done = subprocess.run([*MPCA, *words], capture_output=True, text=True, env=child_environment(**env))
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def photographs(secured: Hadoop, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """URL of a small set that alice brought to her folder; and what was said before she had a ticket."""
    source, target = tmp_path_factory.mktemp("source") / "source.tar", f"{secured.hdfs_url}/user/alice/photographs"
    assert say("generate", "40", str(source), "--classes", "4")[0] == 0
    ingest = ("ingest", str(source), target, "--withheld", "2", "--shorter-edge", "96", "--json")
    refused, _, before = say(*ingest)
    code, out, err = say(*ingest, **secured_login(secured, "alice"))
    assert (refused != 0, code, err) == (True, 0, "")
    assert json.loads(out)["records"] == {"train": 32, "validation": 8}
    return target, before


def test_ingest_and_backups_with_a_ticket_and_without(
    secured: Hadoop, alice: dict[str, str], photographs: tuple[str, str]
) -> None:
    target, err = photographs
    assert "there is no ticket: run kinit" in err
    code, _, err = say("backups", "list", f"{secured.hdfs_url}/user/alice", **secured_login(secured, "bob"))
    assert code != 0
    assert "Permission denied: user=bob" in err
    code, _, err = say("backups", "list", target, **{**alice, "REQUESTS_CA_BUNDLE": ""})
    assert code != 0
    assert "name the file with the cluster's CA in REQUESTS_CA_BUNDLE" in err


def test_a_namenode_that_shows_no_ticket_is_not_believed(secured: Hadoop, alice: dict[str, str], tmp_path: Path) -> None:
    """It has the cluster's certificate, and takes our ticket, but has no key of its own; the second leads to plain HTTP."""
    realm = secured.setup.realm
    assert realm is not None
    values, pem = realm.values(), tmp_path / "key.pem"
    words = ["openssl", "pkcs12", "-in", str(values["keystore"]), "-passin", f"pass:{values['keystore_password']}", "-nodes"]
    subprocess.run([*words, "-out", str(pem)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    for answer, said in ((200, "shows no ticket: its answer is not believed"), (307, "shows no ticket|leads to plain HTTP")):
        with ThreadingHTTPServer(("127.0.0.1", 0), partial(Impostor, answer)) as server:
            server.socket = context.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            code, out, err = say("backups", "list", f"swebhdfs://127.0.0.1:{server.server_port}/user/alice", **alice)
            server.shutdown()
        assert (code != 0, out) == (True, "")
        assert re.search(said, err), err


class Impostor(BaseHTTPRequestHandler):
    """Asks for a ticket, and is content with any."""

    def __init__(self, answer: int, *words: Any) -> None:
        self.answer = answer
        super().__init__(*words)

    def do_GET(self) -> None:
        if self.headers.get("Authorization") is None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Negotiate")
            self.end_headers()
            return
        body = json.dumps({"FileStatus": {"type": "DIRECTORY", "length": 0}}).encode()
        self.send_response(self.answer)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/webhdfs/v1/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


# ---- runs ----


def test_a_run_of_a_keytab_outlives_its_tokens(secured: Hadoop, photographs: tuple[str, str], tmp_path: Path) -> None:
    """In cluster mode, without a ticket: it streams, evaluates, backs up and writes its folder on HDFS all the time."""
    realm, home = secured.setup.realm, f"{secured.hdfs_url}/user/alice"
    assert realm is not None
    conf, run_dir = tmp_path / "small.toml", f"{home}/outlives"
    conf.write_text(SMALL_NET)
    sets = (
        f"data.path={home}/photographs",
        f"run.dir={run_dir}",
        "backup.interval=10s",
        f"objectives.max_time={TOKEN_S + 30}s",
    )
    login = ("spark.kerberos.principal=alice@MPCA.DEV", f"spark.kerberos.keytab={realm.keytab('alice')}")
    began = time.time()
    run = submit(tmp_path, "--deploy-mode", "cluster", sets=(*sets, *login, *CHECKOUT), conf=conf)
    try:
        assert run.ended() == 0, run.text()[-4000:]
        id = only(run.text())
    finally:
        run.close()
    assert time.time() - began > TOKEN_S + 30
    there = f"{secured.setup.hdfs_web('namenode')}/webhdfs/v1/user/alice/outlives"
    summary = json.loads(realm.fetch(f"{there}/summary.json?op=OPEN", "alice", "-L"))
    lines = records(realm.fetch(f"{there}/records.jsonl?op=OPEN", "alice", "-L"))
    assert (summary["status"], summary["agents_lost"]) == ("max_time", 0)
    written = [one["t"] for one in lines if one["kind"] == "backup"]
    evaluated = [one["t"] for one in lines if one["kind"] == "evaluation"]
    assert max(written) > TOKEN_S, "backups after the first tokens' end"
    assert max(evaluated) > TOKEN_S, "and evaluations"
    master = "".join(one.read_text() for one in secured.setup.data.glob(f"nodemanager*/logs/{id}/*_01_000001/stderr"))
    assert master.count("Scheduling renewal in") >= 3, "Spark got new tokens, again and again"
