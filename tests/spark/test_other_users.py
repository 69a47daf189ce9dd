"""A session on a machine that others use too: what a process of another uid gets of it is nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark
import pytest

from mpca.environment import child_environment
from tests.spark.intruder import NOBODY
from tests.spark.support import ROOT, java_pids

pytestmark = [
    pytest.mark.spark,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]
OPENED = ("java.lang", "java.lang.invoke", "java.util", "java.nio", "sun.nio.ch")


@pytest.fixture
def own_spark() -> Iterator[Path]:
    """Jars of a Spark that every user may read."""
    folder = Path(tempfile.mkdtemp(prefix="intruder-"))
    try:
        folder.chmod(0o755)
        shutil.copytree(Path(pyspark.__file__).parent / "jars", folder / "jars")
        shutil.copy(Path(__file__).with_name("Intruder.java"), folder)
        yield folder
    finally:
        shutil.rmtree(folder)


def spark_client(folder: Path, ports: list[int], secrets: list[str], user: int | None) -> list[list[str]]:
    """Endpoints that a Spark client of this user could open: which secret, port, name.

    Args:
        folder: with the jars, and the client.
        ports: that are asked.
        secrets: with which.
        user: None: ours.
    """
    home = child_environment().get("JAVA_HOME")
    done = subprocess.run(
        [
            str(Path(home, "bin", "java")) if home else "java",
            *(word for name in OPENED for word in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")),
            *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
            *("-cp", f"{folder}/jars/*", str(folder / "Intruder.java"), *map(str, ports)),
        ],
        cwd=folder,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        env=child_environment(SPARK_LOCAL_IP="127.0.0.1"),
        input="\n".join(secrets) + "\n",
        capture_output=True,
        text=True,
        timeout=200,
    )
    lines = done.stdout.splitlines()
    assert lines, done.stderr[-3000:]
    assert lines[-1] == "asked everywhere", done.stderr[-3000:]
    return [line.split() for line in lines[:-1]]


def listening(processes: list[psutil.Process]) -> dict[int, int]:
    """Port and pid."""
    return {
        one.laddr.port: process.pid
        for process in processes
        for one in process.net_connections(kind="tcp")
        if one.status == psutil.CONN_LISTEN
    }


def test_another_user_gets_in_nowhere(spark, drive, work_dir: Path, own_spark: Path) -> None:
    driver = drive()
    driver.start_agents(driver.executors(3))
    me = psutil.Process()
    tree = [me, *me.children(recursive=True)]
    assert {*driver.all_pids(), *java_pids(work_dir).values()} < {one.pid for one in tree}
    assert [one.laddr for process in tree for one in process.net_connections(kind="unix") if one.laddr] == []
    ports = listening(tree)
    assert all(
        one.laddr.ip in ("127.0.0.1", "::ffff:127.0.0.1")
        for process in tree
        for one in process.net_connections(kind="tcp")
        if one.status == psutil.CONN_LISTEN
    )
    conf = spark.sparkContext.getConf()
    parameters = spark.sparkContext._gateway.java_parameters
    secret = conf.get("spark.authenticate.secret")
    given = {
        "ports": [port for port, pid in ports.items() if pid != me.pid],
        "py4j": parameters.port,
        "app": spark.sparkContext.applicationId,
        "pids": [one.pid for one in tree],
        "secrets": [secret, parameters.auth_token],
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.intruder"],
        cwd=ROOT,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"pages": [], "calls": [], "processes": [], "words": []}
    assert (work_dir / "spark").stat().st_mode & 0o077 == 0, "executors' logs lie there"

    asked = [port for port in given["ports"] if port != parameters.port]
    assert spark_client(own_spark, asked, ["", "a guess"], NOBODY) == []
    opened = {name for _, _, name in spark_client(own_spark, asked, [secret], 0)}
    assert len(opened) == 5, f"the way in that the others tried: {opened}"

    assert not spark.sparkContext._jsc.sc().isStopped()
    assert driver.executors(3) == sorted(java_pids(work_dir), key=int), "nobody was ended"
    driver.done(driver.submit(begin=driver.everyone()))


def test_the_owner_sees_the_pages(spark) -> None:
    """By an address of this machine, which is all that the page of the Master asks of its own user."""
    me = psutil.Process()
    shown = []
    for port, pid in listening([me, *me.children(recursive=True)]).items():
        if pid == me.pid or port == spark.sparkContext._gateway.java_parameters.port:
            continue
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as page:
                shown.append(page.read().decode())
        except OSError:
            continue  # no web server
    assert sum("Spark Master at" in page for page in shown) == 1
    assert sum("Spark Worker at" in page for page in shown) == 3
