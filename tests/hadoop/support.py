"""Runs submitted as a person would, and what is left of them: for the tests on real daemons."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from mpca.api.launch import resolve
from mpca.cli.dev.hadoop import Hadoop
from mpca.environment import child_environment
from mpca.spark.jvm.classes import archive_options, class_path
from mpca.spark.jvm.hadoop import spark_home
from mpca.spark.jvm.jar import line_of
from mpca.spark.yarn.client import application_ids
from mpca.spark.yarn.sizing import driver_container, executor_container
from mpca.spark.yarn.submit import Submission

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "conf" / "digits.toml"
MPCA = [sys.executable, "-m", "mpca.cli"]
#: Small heaps: two agents, a driver and an application master beside six daemons.
SMALL = (
    "cluster.agents=2",
    "cluster.min_agents=1",
    "cluster.executor_memory=512MiB",
    "spark.driver.memory=700m",
    "cluster.start_timeout=400s",
    "cluster.cycle_deadline=90s",  # what is slow here is the machine
)
#: Their JVMs live for a minute: what the second compiler would speed up later costs a fifth of the time that they have. They
#: begin from the archive of classes, as those of sessions here do.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK = (
    f"spark.yarn.am.extraJavaOptions={_JAVA}",
    *(f"spark.{one}.extraJavaOptions={_JAVA} {archive_options()}".rstrip() for one in ("driver", "executor")),
    *(f"spark.{one}.extraClassPath={class_path()}" for one in ("driver", "executor")),
)
PATIENCE_S = 500.0
#: A train script that leaves the cores to the daemons that a test waits for; its argument is a file that ends it.
GENTLE = ("--train", str(ROOT / "tests" / "hadoop" / "programs" / "until.py"))
#: Everything that Spark can encrypt or ask a secret for; YARN hands the secret out.
SECURED = (
    "spark.authenticate=true",
    "spark.network.crypto.enabled=true",
    "spark.io.encryption.enabled=true",
    "spark.serializer=org.apache.spark.serializer.KryoSerializer",
)


class Submitted:
    """A `mpca submit`, or another command that starts an application, and its application."""

    def __init__(self, *words: str, cwd: Path, log: Path, env: dict[str, str] | None = None) -> None:
        self.log, self.out = log, log.with_name(f"{log.name}.out")
        with self.log.open("wb") as err, self.out.open("wb") as out:
            self.process = subprocess.Popen(
                words, stdout=out, stderr=err, cwd=cwd, start_new_session=True, env=child_environment(**(env or {}))
            )

    def said(self) -> str:
        """Its standard output alone: beside it, Spark's log can begin in the middle of a line."""
        return self.out.read_text(errors="replace")

    def text(self) -> str:
        """Its standard output, and after that all of its standard error."""
        return self.said() + self.log.read_text(errors="replace")

    def until(self, there: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> Any:
        """What `there` gives, once it gives something; the command must still run."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = there()
            if found:
                return found
            assert self.process.poll() is None, f"{what}: ended with {self.process.returncode}\n{self.text()[-4000:]}"
            time.sleep(0.2)
        raise AssertionError(f"{what}: not after {seconds} s\n{self.text()[-4000:]}")

    def ended(self, seconds: float = PATIENCE_S) -> int:
        """Its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not over after {seconds} s\n{self.text()[-4000:]}") from None

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def submit(folder: Path, *words: str, sets: tuple[str, ...] = (), conf: Path = DIGITS) -> Submitted:
    """`mpca submit` from an empty folder."""
    command = [*MPCA, "submit", str(conf), "--jars-on-nodes", *words]
    for one in (*SMALL, *QUICK, *sets):
        command += ["--set", one]
    return Submitted(*command, cwd=folder, log=folder / f"submit-{time.monotonic_ns()}.log")


def program(folder: Path, name: str, *words: str, sets: tuple[str, ...] = (), proxy_user: str = "") -> Submitted:
    """One of the drivers in ``programs/``, by the line that `mpca submit` would run, in client mode and without its checks.

    The program's own process finds this checkout; what runs on executors does not.
    """
    home, settings = spark_home(), (*SMALL, *QUICK, *sets)
    config = resolve(None, settings)
    line = Submission(
        config=config,
        sets=settings,
        program=str(ROOT / "tests" / "hadoop" / "programs" / name),
        words=words,
        deploy_mode="client",
        executor=executor_container(config.cluster.executor_memory, 1, 0, config.method.shards),
        driver=driver_container(512 << 20, 0, config.method, torch=False, evaluates=False),
        python=sys.executable,
        jar=str(line_of(home.core_jar).jar),
        spark_jars={"spark.yarn.jars": f"local:{home.path}/jars/*"},
        local_ip="127.0.0.1",
        proxy_user=proxy_user,
    ).command(str(home.submit))
    log = folder / f"{name}-{time.monotonic_ns()}.log"
    return Submitted(*line, cwd=folder, log=log, env={"PYTHONPATH": str(ROOT), "SPARK_HOME": str(home.path)})


def running(hadoop: Hadoop, name: str) -> str | None:
    """Id of the running application of that name."""
    apps = (hadoop.resourcemanager("apps")["apps"] or {}).get("app", [])
    return next((one["id"] for one in apps if one["name"] == name and one["state"] == "RUNNING"), None)


def application(hadoop: Hadoop, id: str) -> dict[str, Any]:
    """As the ResourceManager's REST tells it."""
    found: dict[str, Any] = hadoop.resourcemanager(f"apps/{id}")["app"]
    return found


def end_applications(hadoop: Hadoop, *ids: str) -> None:
    """Kill these applications, or all that a test that failed has left to YARN."""
    for one in (hadoop.resourcemanager("apps")["apps"] or {}).get("app", []):
        if one["state"] not in ("FINISHED", "FAILED", "KILLED") and (one["id"] in ids or not ids):
            url = f"{hadoop.resourcemanager_url}/ws/v1/cluster/apps/{one['id']}/state?user.name={getpass.getuser()}"
            kill = urllib.request.Request(url, b'{"state": "KILLED"}', {"Content-Type": "application/json"}, method="PUT")
            urllib.request.urlopen(kill, timeout=30).close()


def jvms(id: str, main: str) -> dict[int, str]:
    """Java processes of an application by pid, with their command line; not the shells that started them."""
    found = {}
    for one in psutil.process_iter(["pid", "cmdline"]):
        words = one.info["cmdline"] or []
        if words and words[0].endswith("/java") and main in words and any(id in word for word in words):
            found[one.info["pid"]] = " ".join(words)
    return found


def executors(id: str) -> dict[int, str]:
    return jvms(id, "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend")


def living(id: str) -> list[str]:
    """Processes of an application: with its id on the command line, or in the environment, as all in its containers have."""
    found = []
    for one in psutil.process_iter(["pid", "cmdline", "status"]):
        try:
            ours = id in " ".join(one.info["cmdline"] or []) or id in one.environ().get("LOG_DIRS", "")
        except psutil.Error:
            continue
        if ours and one.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(f"{one.info['pid']} {' '.join(one.info['cmdline'] or [])[:120]}")
    return found


def mapped(id: str) -> list[str]:
    """Files of ours in the memory of processes of an application. None of them has a name in a folder."""
    found = []
    for line in living(id):
        with contextlib.suppress(OSError):
            found += re.findall(r"/memfd:mpca\S+", Path(f"/proc/{line.split()[0]}/maps").read_text())
    return found


def nothing_lives(id: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while left := living(id):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def records(lines: str, kind: str | None = None) -> list[dict[str, Any]]:
    """Whole lines of a ledger."""
    found = [json.loads(line) for line in lines.splitlines() if line.endswith("}")]
    return [one for one in found if kind in (None, one["kind"])]


def driver_records(hadoop: Hadoop, kind: str | None = None) -> list[dict[str, Any]]:
    """The records of a driver in cluster mode that runs, which lie in its container until they are on HDFS."""
    texts = []
    for path in hadoop.setup.data.glob("nodemanager*/local/usercache/*/appcache/*/container_*_000001/mpca-*/records.jsonl"):
        with contextlib.suppress(OSError):
            texts.append(path.read_text())
    return [one for text in texts for one in records(text, kind)]


def only(ids: str) -> str:
    (found,) = application_ids(ids)
    return found
