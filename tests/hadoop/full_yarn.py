"""YARN as it is set up elsewhere: `make test-yarn` has these, and CI has not. Each is a story of one run, on real daemons.

Not `mpca dev hadoop`, but the tests that need it change the cluster's files, and put them back.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hdfs
import psutil
import pytest

from mpca.cli.dev.daemons import Daemons
from mpca.cli.dev.hadoop import Hadoop
from mpca.environment import child_environment
from mpca.spark.jvm.hadoop import spark_home
from mpca.spark.yarn.client import application_ids
from mpca.storage import Location, joined
from mpca.storage.opening import open_store
from tests.hadoop.support import (
    DIGITS,
    GENTLE,
    MPCA,
    ROOT,
    SMALL,
    Submitted,
    application,
    end_applications,
    executors,
    jvms,
    nothing_lives,
    only,
    program,
    records,
    submit,
)
from tests.hadoop.test_am import MASTER

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


class Ledger:
    """What a run has written so far, in a folder or on HDFS."""

    def __init__(self, run_dir: str) -> None:
        self._run_dir = run_dir

    def lines(self, kind: str, **wanted: object) -> list[dict[str, Any]]:
        return [one for one in records(self._text(), kind) if all(one[key] == value for key, value in wanted.items())]

    def summary(self) -> dict[str, Any]:
        return dict(json.loads(open_store(Location.parse(self._run_dir)).read("summary.json")))

    def cycles_go_on(self, run: Submitted, count: int = 4) -> None:
        beyond = len(self.lines("cycle")) + count
        run.until(lambda: len(self.lines("cycle")) >= beyond, f"{beyond} cycles")

    def _text(self) -> str:
        if "://" in self._run_dir:
            store = open_store(Location.parse(self._run_dir))
            return joined(store).decode() if store.exists("") else ""
        path = Path(self._run_dir, "records.jsonl")
        return path.read_text() if path.exists() else ""

    def every_cycle_is_there(self) -> None:
        assert [one["cycle"] for one in self.lines("cycle")] == list(range(self.summary()["cycles"])), "no cycle was lost"


def doctor(*words: str, **env: str) -> dict[str, tuple[str, str]]:
    """Level and text of each finding."""
    done = subprocess.run([*MPCA, "doctor", *words], capture_output=True, text=True, env=child_environment(**env), check=False)
    assert done.returncode in (0, 1), done.stderr
    return {line[7:26].strip(): (line[:6].strip(), line[26:]) for line in done.stdout.splitlines()}


# ---- attempts ----------------------------------------------------------------------------------------------------------


def drivers_python(id: str) -> psutil.Process:
    """The driver's own process, below its application master."""
    (master,) = jvms(id, MASTER)
    (found,) = (one for one in psutil.Process(master).children() if any(word.endswith("mpca_run.py") for word in one.cmdline()))
    return found


def test_any_number_of_drivers_may_die_as_long_as_yarn_forgets_them(hadoop: Hadoop, folder: str, tmp_path: Path) -> None:
    """Two attempts within twenty seconds are allowed. Three times its Python is killed, and its JVM sees it."""
    place, end = f"{hadoop.hdfs_url}{folder}", tmp_path / "end"
    sets = (
        *(f"run.dir={place}", "objectives.max_time=20min", "cluster.agents=1", "backup.interval=1s"),
        *("spark.yarn.maxAppAttempts=2", "spark.yarn.am.attemptFailuresValidityInterval=20s"),
    )
    run, ledger = submit(tmp_path, "--deploy-mode", "cluster", *GENTLE, str(end), sets=sets), Ledger(place)
    try:
        for attempt in (1, 2, 3):
            run.until(lambda attempt=attempt: ledger.lines("run", attempt=attempt), f"attempt {attempt}")
            ledger.cycles_go_on(run)
            python = drivers_python(only(run.text()))
            time.sleep(21.0 if attempt > 1 else 0.0)  # YARN forgets the failure before
            python.kill()
        run.until(lambda: ledger.lines("run", attempt=4), "attempt 4")
        ledger.cycles_go_on(run)
        end.touch()
        assert run.ended() == 0, run.text()[-4000:]
    finally:
        run.close()
        end_applications(hadoop)
    summary = ledger.summary()
    assert (summary["status"], summary["attempts"]) == ("reached", 4)
    nothing_lives(only(run.text()))


# ---- two ResourceManagers ----------------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    """Two ResourceManagers, and two NameNodes; gone before the cluster of the other tests comes up."""
    cluster = Hadoop(tmp_path_factory.mktemp("two"), print)
    try:
        cluster.up(ha=True)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in cluster.env().items():
                patch.setenv(name, value)
            yield cluster
    finally:
        cluster.down()


def only_hosts(conf: Path, hosts: dict[str, str]) -> dict[str, str]:
    """The environment for a configuration that names ResourceManagers by their hosts alone; ports are Hadoop's own."""
    conf.mkdir()
    (conf / "core-site.xml").write_text("<configuration/>")
    keys = {
        "yarn.resourcemanager.ha.enabled": "true",
        "yarn.resourcemanager.ha.rm-ids": ",".join(hosts),
        **{f"yarn.resourcemanager.hostname.{id}": host for id, host in hosts.items()},
    }
    rows = "".join(f"<property><name>{key}</name><value>{value}</value></property>" for key, value in keys.items())
    (conf / "yarn-site.xml").write_text(f"<configuration>{rows}</configuration>")
    return {"HADOOP_CONF_DIR": str(conf), "YARN_CONF_DIR": str(conf)}


def test_two_resourcemanagers_that_do_not_answer_are_both_named(tmp_path: Path) -> None:
    """Nothing listens at these addresses."""
    env = only_hosts(tmp_path / "conf", {"a": "127.0.0.8", "b": "127.0.0.9"})
    done = subprocess.run([*MPCA, "submit", str(DIGITS)], capture_output=True, text=True, env=child_environment(**env))
    assert done.returncode == 2
    assert "no ResourceManager answers at 127.0.0.8:8032 or 127.0.0.9:8032: " in done.stderr.splitlines()[-1]


def test_runs_go_on_when_a_resourcemanager_dies_and_the_other_takes_its_place(two: Hadoop, tmp_path: Path) -> None:
    """A run in client mode and one in cluster mode; then the first ResourceManager is asked to take over again."""
    end = tmp_path / "end"
    places = {"client": str(tmp_path / "near"), "cluster": "hdfs:///tests/far"}
    runs: dict[str, Submitted] = {}
    try:
        for mode, place in places.items():
            count = ("cluster.agents=1",) if mode == "cluster" else ()
            sets = (f"run.dir={place}", "objectives.max_time=20min", *count)
            runs[mode] = submit(tmp_path, "--deploy-mode", mode, *GENTLE, str(end), sets=sets)
        ledgers = {mode: Ledger(place) for mode, place in places.items()}
        for mode, run in runs.items():
            run.until(lambda mode=mode: len(ledgers[mode].lines("cycle")) > 3, f"cycles in {mode} mode")
        ids = {mode: run.until(lambda run=run: application_ids(run.text()), "an id")[0] for mode, run in runs.items()}
        pids = {mode: [one["pid"] for one in ledgers[mode].lines("agent", event="started")] for mode in runs}
        assert {mode: len(each) for mode, each in pids.items()} == {"client": 2, "cluster": 1}

        # the active one dies, and nobody is told
        assert two.active_resourcemanager() == "resourcemanager1"
        two.kill("resourcemanager1")
        assert two.active_resourcemanager() is None
        for mode, run in runs.items():
            ledgers[mode].cycles_go_on(run)
        assert two.fail_over_resourcemanager() == "resourcemanager2"
        found = doctor()
        assert not [text for level, text in found.values() if level == "stop"], found
        assert found["Hadoop"][0] == found["attempts"][0] == found["queue"][0] == "ok", "the page of the one that is left"
        for mode, run in runs.items():
            run.until(lambda mode=mode: application(two, ids[mode])["state"] == "RUNNING", "it runs for the new one")
            ledgers[mode].cycles_go_on(run)
            assert ledgers[mode].lines("agent", event="lost") == []
            assert all(psutil.pid_exists(pid) for pid in pids[mode]), "the same processes"

        # whoever asks for a container gets it from the new one
        near = ledgers["client"]
        victim = next(
            pid for pid in executors(ids["client"]) if pid in [one.pid for one in psutil.Process(pids["client"][1]).parents()]
        )
        os.kill(victim, signal.SIGKILL)
        runs["client"].until(lambda: near.lines("agent", event="replaced"), "another executor")

        # and back, in order
        two.start("resourcemanager1")
        assert two.fail_over_resourcemanager() == "resourcemanager1"
        for mode, run in runs.items():
            ledgers[mode].cycles_go_on(run)
        end.touch()
        for run in runs.values():
            assert run.ended() == 0, run.text()[-4000:]
        for mode, ledger in ledgers.items():
            summary, lost = ledger.summary(), 1 if mode == "client" else 0
            assert (summary["attempts"], summary["agents_lost"], summary["agents_replaced"]) == (1, lost, lost)
            ledger.every_cycle_is_there()
    finally:
        end.touch()
        for run in runs.values():
            run.close()
    for id in ids.values():
        assert application(two, id)["finalStatus"] == "SUCCEEDED"
        nothing_lives(id)


# ---- one ResourceManager, whose files change ---------------------------------------------------------------------------


@pytest.fixture
def left_alone(hadoop: Hadoop) -> Iterator[None]:
    """Nothing of a test that failed runs on."""
    yield
    end_applications(hadoop)


@contextlib.contextmanager
def set_up(hadoop: Hadoop, *daemons: str, texts: dict[str, str] | None = None, **sites: dict[str, str]) -> Iterator[None]:
    """The cluster with other files, which these daemons are started again to read; afterwards as it was.

    Args:
        hadoop: the cluster.
        daemons: their names.
        texts: new files of its configuration.
        sites: properties that win over those of ``SITE-site.xml`` or, where that does not exist, make it.
    """
    conf, before = hadoop.setup.conf, {}
    new = dict(texts or {})
    for site, properties in sites.items():
        name = f"{site.replace('_', '-')}.xml"
        rows = "".join(f"<property><name>{key}</name><value>{value}</value></property>\n" for key, value in properties.items())
        there = (conf / name).read_text() if (conf / name).exists() else "<configuration>\n</configuration>\n"
        new[name] = there.replace("</configuration>", f"{rows}</configuration>")
    for name, text in new.items():
        before[name] = (conf / name).read_text() if (conf / name).exists() else None
        (conf / name).write_text(text)
    try:
        for name in daemons:
            hadoop.restart(name)
        yield
    finally:
        end_applications(hadoop)
        for name, text in before.items():
            (conf / name).unlink() if text is None else (conf / name).write_text(text)
        for name in daemons:
            if hadoop.status()[name] != "down":
                hadoop.kill(name)
            hadoop.start(name)


def both(found: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    return found if len(found) == 2 else None


@pytest.mark.usefixtures("left_alone")
def test_all_agents_are_preempted_at_once_and_the_run_waits_for_them(hadoop: Hadoop, tmp_path: Path) -> None:
    """The queue `default` asks for all of the cluster, and leaves the run its application master alone."""
    run_dir, end, over = tmp_path / "run", tmp_path / "end", tmp_path / "over"
    ledger = Ledger(str(run_dir))
    # The master takes what its queue is sure of: with less than that the queue would be the next to get a container again,
    # which would be taken at once. The first executor that fails, by YARN's count, ends the application.
    sets = (f"run.dir={run_dir}", "objectives.max_time=20min", "spark.yarn.am.memory=1152m", "spark.executor.maxNumFailures=1")
    run = submit(tmp_path, "--queue", "spare", *GENTLE, str(end), sets=sets)
    other = None
    try:
        run.until(lambda: len(ledger.lines("cycle")) > 3, "the first cycles")
        large = ("cluster.agents=5", "spark.plugins=", "spark.executor.memoryOverhead=2560m")  # four of them fit
        other = program(tmp_path, "other.py", str(over), sets=large)
        (paused,) = run.until(lambda: ledger.lines("pause"), "a pause")
        assert (paused["reason"], paused["end"]) == ("0 of 2 agents alive, min_agents=1", None)
        committed = len(ledger.lines("cycle"))
        lost = run.until(lambda: both(ledger.lines("agent", event="lost")), "YARN's reasons, which come later")
        assert sorted(one["index"] for one in lost) == [0, 1]
        assert all("was preempted" in one["reason"] for one in lost), lost
        other.until(lambda: "job 3" in other.said(), "the other application has what it took")
        assert len(ledger.lines("cycle")) == committed, "a run without agents commits nothing"
        over.touch()
        assert other.ended() == 0, other.text()[-4000:]
        run.until(lambda: both(ledger.lines("agent", event="replaced")), "both come back")
        run.until(lambda: len(ledger.lines("cycle")[-1]["contributors"]) == 2, "both take part")
        ledger.cycles_go_on(run)
        end.touch()
        assert run.ended() == 0, run.text()[-4000:]
    finally:
        for one in (run, other):
            if one is not None:
                one.close()
    # The first agent that is back may be told to begin anew, which is another pause, of an instant.
    pauses = ledger.lines("pause")
    ended = {one["start"]: one["end"] - one["start"] for one in pauses if one["end"] is not None}
    assert [one["start"] for one in pauses if one["end"] is None] == list(ended), "each ended before the next"
    print(f"paused for {ended[paused['start']]:.1f} s")
    summary = ledger.summary()
    assert (summary["agents_lost"], summary["agents_replaced"], summary["attempts"]) == (2, 2, 1)
    ledger.every_cycle_is_there()
    assert {part["incarnation"] for part in ledger.lines("cycle")[-1]["contributors"].values()} <= {1}
    told = application(hadoop, only(run.text()))
    assert (told["numNonAMContainerPreempted"], told["numAMContainerPreempted"]) == (2, 0), "as YARN tells it"
    assert (told["state"], told["finalStatus"]) == ("FINISHED", "SUCCEEDED")
    nothing_lives(told["id"])


FAIR = """<?xml version="1.0"?>
<allocations>
  <queue name="default"/>
  <queue name="science"><weight>3</weight><queue name="training"/></queue>
  <queuePlacementPolicy><rule name="specified" create="false"/><rule name="reject"/></queuePlacementPolicy>
</allocations>
"""


def test_queues_of_the_fair_scheduler_are_found_by_the_names_that_it_takes(hadoop: Hadoop, tmp_path: Path) -> None:
    scheduler = {
        "yarn.resourcemanager.scheduler.class": "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FairScheduler",
        "yarn.resourcemanager.scheduler.monitor.enable": "false",  # which is the capacity scheduler's
    }
    with set_up(hadoop, "resourcemanager", texts={"fair-scheduler.xml": FAIR}, yarn_site=scheduler):
        found = doctor()
        assert found["queue"] == ("ok", "root.default: a fair share of the cluster"), found
        for name in ("science.training", "root.science.training"):
            assert doctor("--queue", name)["queue"] == ("ok", "root.science.training: a fair share of the cluster")
        level, text = doctor("--queue", "training")["queue"]
        assert level == "stop"
        assert "no such queue: --queue training; did you mean 'root.science.training'?" in text
        run = submit(
            tmp_path,
            *("--queue", "science.training"),
            sets=(f"run.dir={tmp_path / 'run'}", "objectives.max_time=10s"),
        )
        try:
            assert run.ended() == 0, run.text()[-4000:]
        finally:
            run.close()
        told = application(hadoop, only(run.text()))
        assert (told["queue"], told["finalStatus"]) == ("root.science.training", "SUCCEEDED")
        assert Ledger(str(tmp_path / "run")).summary()["agents_lost"] == 0


LABELLED = {
    "yarn.scheduler.capacity.root.queues": "default,spare,training",
    "yarn.scheduler.capacity.root.default.capacity": "40",
    "yarn.scheduler.capacity.root.training.capacity": "50",
    "yarn.scheduler.capacity.root.training.maximum-capacity": "100",
    "yarn.scheduler.capacity.root.training.user-limit-factor": "10",
    "yarn.scheduler.capacity.root.accessible-node-labels": "*",
    "yarn.scheduler.capacity.root.accessible-node-labels.fast.capacity": "100",
    "yarn.scheduler.capacity.root.default.accessible-node-labels": " ",  # none
    "yarn.scheduler.capacity.root.spare.accessible-node-labels": " ",
    "yarn.scheduler.capacity.root.training.accessible-node-labels": "fast",
    "yarn.scheduler.capacity.root.training.accessible-node-labels.fast.capacity": "100",
    "yarn.scheduler.capacity.root.training.default-node-label-expression": "fast",
}


def test_agents_come_to_the_nodes_of_a_label_and_one_that_is_not_there_is_refused(hadoop: Hadoop, tmp_path: Path) -> None:
    """A queue's own label; then an application master on the other node, by Spark's setting."""
    labels = {
        "yarn.node-labels.enabled": "true",
        "yarn.node-labels.fs-store.root-dir": f"file://{hadoop.setup.data}/labels",
    }
    executor, master = "spark.yarn.executor.nodeLabelExpression", "spark.yarn.am.nodeLabelExpression"
    with set_up(hadoop, "resourcemanager", yarn_site=labels, capacity_scheduler=LABELLED):
        admin = "org.apache.hadoop.yarn.client.cli.RMAdminCLI"
        yarn = Daemons(hadoop.setup)
        yarn.tool(admin, "-addToClusterNodeLabels", "fast(exclusive=true)")
        yarn.tool(admin, "-replaceLabelsOnNode", "127.0.0.3=fast")

        def refusal(*words: str) -> str:
            run = submit(tmp_path, *words)
            try:
                assert run.ended() == 2, run.text()
            finally:
                run.close()
            return run.text().splitlines()[-1]

        asked = hadoop.resourcemanager("metrics")["clusterMetrics"]["appsSubmitted"]
        assert f"no such node label: {executor}=fats; did you mean 'fast'?" in refusal("--set", f"{executor}=fats")
        assert f"queue default has no access to node label: {master}=fast; " in refusal("--set", f"{master}=fast")
        assert hadoop.resourcemanager("metrics")["clusterMetrics"]["appsSubmitted"] == asked

        for name, sets, where in (
            ("own", (), {"master": {"127.0.0.3"}, "agents": {"127.0.0.3"}}),
            ("set", (f"{master}=", f"{executor}=fast"), {"master": {"127.0.0.2"}, "agents": {"127.0.0.3"}}),
        ):
            ledger, end = Ledger(str(tmp_path / name)), tmp_path / f"end-{name}"
            sets = (*sets, f"run.dir={tmp_path / name}", "objectives.max_time=20min")
            run = submit(tmp_path, "--queue", "training", *GENTLE, str(end), sets=sets)
            try:
                run.until(lambda ledger=ledger: len(ledger.lines("cycle")) > 3, "cycles")
                id = only(run.text())
                found = {
                    "master": {application(hadoop, id)["amHostHttpAddress"].partition(":")[0]},
                    "agents": {one["host"] for one in ledger.lines("agent", event="started")},
                }
                assert found == where
                end.touch()
                assert run.ended() == 0, run.text()[-4000:]
            finally:
                run.close()


# ---- a Spark that is laid out like the distribution, and its history ---------------------------------------------------

#: What Cloudera Manager writes for a gateway of Spark 3, without its own classes.
DEFAULTS = """\
spark.authenticate=false
spark.driver.log.dfsDir=/user/spark/driver3Logs
spark.driver.log.persistToDfs.enabled=true
spark.dynamicAllocation.enabled=true
spark.dynamicAllocation.executorIdleTimeout=60
spark.dynamicAllocation.minExecutors=0
spark.dynamicAllocation.schedulerBacklogTimeout=1
spark.eventLog.enabled=true
spark.eventLog.dir={history}
spark.io.encryption.enabled=false
spark.network.crypto.enabled=false
spark.serializer=org.apache.spark.serializer.KryoSerializer
spark.shuffle.service.enabled=true
spark.shuffle.service.port=7337
spark.ui.enabled=true
spark.ui.killEnabled=true
spark.master=yarn
spark.submit.deployMode=client
spark.yarn.historyServer.address={server}
spark.yarn.historyServer.allowTracking=true
spark.yarn.jars=local:{home}/jars/*
spark.driver.extraLibraryPath={home}/native
spark.executor.extraLibraryPath={home}/native
spark.yarn.am.extraLibraryPath={home}/native
spark.hadoop.mapreduce.application.classpath=
spark.hadoop.yarn.application.classpath=
spark.yarn.appMasterEnv.OPENBLAS_NUM_THREADS=1
spark.executorEnv.OPENBLAS_NUM_THREADS=1
"""
LOG4J = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p  %c{1}: [%t]: %m%n
"""


@pytest.fixture
def distribution(tmp_path: Path) -> Path:
    """bin/, jars/, python/lib and conf/, as in the archive that Spark publishes; its files are those of pip's."""
    pip, home = spark_home().path, tmp_path / "spark3"
    for folder in ("bin", "sbin", "python/lib"):
        shutil.copytree(pip / folder, home / folder)
    (home / "jars").mkdir()
    for jar in (pip / "jars").glob("*.jar"):
        (home / "jars" / jar.name).symlink_to(jar)
    (home / "conf").mkdir()
    (home / "conf" / "log4j2.properties").write_text(LOG4J)
    return home


def page(url: str) -> Any:
    """None while nobody answers."""
    with contextlib.suppress(OSError):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=30) as answer:
            return json.load(answer)
    return None


@pytest.mark.usefixtures("left_alone")
def test_a_distributions_spark_with_clouderas_defaults_and_its_history_server(
    hadoop: Hadoop, distribution: Path, tmp_path: Path
) -> None:
    """No option says that jars are on the nodes: Cloudera's settings do. The class path of `QUICK` would be pip's."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{one.getsockname()[1]}"
    history, run_dir = f"{hadoop.hdfs_url}/user/spark/spark3ApplicationHistory", tmp_path / "run"
    end = tmp_path / "end"
    (distribution / "conf" / "spark-defaults.conf").write_text(
        DEFAULTS.format(history=history, server=server, home=distribution)
    )
    root = hdfs.InsecureClient(hadoop.webhdfs_url.replace("webhdfs://", "http://"), user=getpass.getuser())
    for name in ("driver3Logs", "spark3ApplicationHistory"):
        root.makedirs(f"/user/spark/{name}")
    ledger = Ledger(str(run_dir))

    command = [*MPCA, "submit", str(DIGITS), *GENTLE, str(end)]
    for one in (*SMALL, f"run.dir={run_dir}", "objectives.max_time=20min"):
        command += ["--set", one]
    run = Submitted(*command, cwd=tmp_path, log=tmp_path / "submit.log", env={"SPARK_HOME": str(distribution)})
    with (tmp_path / "history.log").open("wb") as log:
        watcher = subprocess.Popen(
            [str(distribution / "bin" / "spark-class"), "org.apache.spark.deploy.history.HistoryServer"],
            env=child_environment(
                SPARK_HOME=str(distribution),
                SPARK_HISTORY_OPTS=f"-Dspark.history.fs.logDirectory={history} -Dspark.history.fs.update.interval=2s "
                f"-Dspark.history.ui.port={server.rpartition(':')[2]}",
                SPARK_DAEMON_MEMORY="512m",
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    try:
        run.until(lambda: len(ledger.lines("cycle")) >= 30, "cycles")
        id = only(run.text())
        assert f"{id} RUNNING" in run.said(), "its own log's pattern is read too"
        run.until(lambda: page(f"{server}/api/v1/applications/{id}"), "the run in the list of those that go on")
        run.until(lambda: len(ledger.lines("cycle")) >= 100, "a hundred cycles")
        end.touch()
        assert run.ended() == 0, run.text()[-4000:]
        cycles = len(ledger.lines("cycle"))
        a_cycle = root.content("/user/spark/spark3ApplicationHistory")["length"] / cycles
        print(f"event log: {a_cycle / 1024:.1f} KiB a cycle, over {cycles} cycles")
        assert a_cycle < 64 << 10, "docs/administrators.md says how much it is"
        until = time.monotonic() + 120
        while not (told := page(f"{server}/api/v1/applications/{id}")) or not told["attempts"][-1]["completed"]:
            assert time.monotonic() < until, told
            time.sleep(1)
        jobs = page(f"{server}/api/v1/applications/{id}/jobs")
        assert len(jobs) >= cycles, "each cycle is a job"
    finally:
        run.close()
        watcher.terminate()
        watcher.wait()
    summary = ledger.summary()
    assert (summary["status"], summary["agents_lost"]) == ("reached", 0)
    assert application(hadoop, id)["finalStatus"] == "SUCCEEDED"
    nothing_lives(id)

    # what containers said is on HDFS, for `yarn logs`
    until = time.monotonic() + 120
    while application(hadoop, id)["logAggregationStatus"] != "SUCCEEDED":
        assert time.monotonic() < until, application(hadoop, id)
        time.sleep(1)
    told = Daemons(hadoop.setup).tool("org.apache.hadoop.yarn.client.cli.LogsCLI", "-applicationId", id)
    assert told.count("Container: container_") >= 3, "the master's and two executors'"
    assert told.count("CoarseGrainedExecutorBackend: [main]: Started daemon") == 2, "by the log4j2 of their Spark"


# ---- GPUs as YARN counts them ------------------------------------------------------------------------------------------

#: Answers YARN's plug-in (``-x -q``) and mpca's script (``--query-gpu=uuid``) as NVIDIA's program does.
NVIDIA_SMI = """\
#!/bin/sh
case "$1" in
  --query-gpu=uuid) for number in 0 1; do echo "GPU-{name}-$number"; done ;;
  *) echo '<nvidia_smi_log><driver_version>535</driver_version><attached_gpus>2</attached_gpus>'
     for number in 0 1; do
       echo "<gpu><minor_number>$number</minor_number><product_name>none</product_name><uuid>GPU-{name}-$number</uuid></gpu>"
     done
     echo '</nvidia_smi_log>' ;;
esac
"""


def test_yarn_counts_gpus_and_each_agent_takes_one_of_its_containers(hadoop: Hadoop, tmp_path: Path) -> None:
    """YARN's own plug-in finds two devices a node, by a stand-in for nvidia-smi; nothing isolates them here."""
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(NVIDIA_SMI.format(name=tmp_path.name))
    smi.chmod(0o755)
    types = {"yarn.resource-types": "yarn.io/gpu"}
    plugin = {
        "yarn.nodemanager.resource-plugins": "yarn.io/gpu",
        "yarn.nodemanager.resource-plugins.gpu.path-to-discovery-executables": str(smi),
        "yarn.nodemanager.resource-plugins.gpu.allowed-gpu-devices": "0:0,1:1",
    }
    daemons = ("resourcemanager", "nodemanager1", "nodemanager2")

    def used() -> int:
        """GPUs in all containers, as the ResourceManager counts them."""
        found = [
            each["value"]
            for node in hadoop.resourcemanager("nodes")["nodes"]["node"]
            for each in node["usedResource"]["resourceInformations"]["resourceInformation"]
            if each["name"] == "yarn.io/gpu"
        ]
        assert len(found) == 2, "both nodes have some"
        return sum(found)

    with set_up(hadoop, *daemons, yarn_site=plugin, resource_types=types):
        assert doctor()["GPUs"] == ("ok", "counted as yarn.io/gpu; 2 in the node with most")
        three = ("cluster.agents=3", "cluster.agents_per_executor=3", "cluster.device=cuda", "cluster.agent_memory=1GiB")
        run = submit(tmp_path, sets=three)
        try:
            assert run.ended() == 2, run.text()
        finally:
            run.close()
        assert "executor container of 3 GPUs is more than any node has (2)" in run.text().splitlines()[-1]

        # what `cluster.device = "cuda"` sets; agents themselves have no GPU to compute on
        assert used() == 0
        script = ROOT / "mpca" / "cli" / "program" / "mpca_gpus.sh"
        gpus = (
            "spark.executor.resource.gpu.amount=2",
            "spark.executor.resource.gpu.discoveryScript=./mpca_gpus.sh",
            f"spark.yarn.dist.files={script}",
            f"spark.executorEnv.PATH={smi.parent}:{os.environ['PATH']}",
        )
        two_each = ("cluster.agents=2", "cluster.agents_per_executor=2", "objectives.max_time=20min")
        train = ("--train", str(ROOT / "tests" / "hadoop" / "programs" / "devices.py"), str(tmp_path))
        ledger = Ledger(str(tmp_path / "run"))
        run = submit(tmp_path, *train, sets=(*gpus, *two_each, f"run.dir={tmp_path / 'run'}"))
        try:
            run.until(lambda: len(ledger.lines("cycle")) > 3, "cycles")
            assert used() == 2, "one container with two, and the master has none"
            told = sorted((tmp_path / f"agent-{rank}").read_text() for rank in range(2))
            assert told == [f"GPU-{tmp_path.name}-{number}" for number in range(2)]
            (tmp_path / "end").touch()
            assert run.ended() == 0, run.text()[-4000:]
        finally:
            run.close()
        assert ledger.summary()["agents_lost"] == 0
