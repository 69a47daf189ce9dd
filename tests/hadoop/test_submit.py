"""Runs submitted in client mode: by a line changed by hand, and one that meets several faults in turn."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mpca.cli.dev.hadoop import Hadoop
from mpca.spark.jvm.hadoop import spark_home
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
    living,
    nothing_lives,
    only,
    records,
    submit,
)
from tests.spark.test_other_users import spark_client

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def nothing_runs_on(hadoop: Hadoop) -> Iterator[None]:
    yield
    end_applications(hadoop)


def test_the_printed_line_runs_a_program_of_ones_own_by_hand(hadoop: Hadoop, tmp_path: Path) -> None:
    sets = [word for one in SMALL for word in ("--set", one)]
    dry = subprocess.run(
        [*MPCA, "submit", str(DIGITS), "--jars-on-nodes", "--dry-run", *sets],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    line = shlex.split(dry.stdout.splitlines()[-1])
    assert line[-2:] == [str(ROOT / "mpca" / "cli" / "program" / "mpca_run.py"), str(DIGITS)]
    program = str(ROOT / "tests" / "hadoop" / "programs" / "by_hand.py")
    run_dir = tmp_path / "run"
    changes = (f"spark.mpca.run.dir={run_dir}", "spark.mpca.run.name=mine", "spark.authenticate=false")
    by_hand = [*line[:-2], *(word for one in changes for word in ("--conf", one)), program]
    started = Submitted(*by_hand, cwd=tmp_path, log=tmp_path / "log")
    try:
        assert started.ended() == 0, started.text()[-4000:]
        assert f"by hand: reached 2 {run_dir}" in started.said()
        assert "warning: spark.authenticate = false: should be true. Without a secret, anybody who" in started.said()
        id = only(started.text())
        summary = json.loads((run_dir / "summary.json").read_text())
        assert summary["status"] == "reached"
        assert summary["final_error"] <= 0.05
        stages = list(summary["submit_seconds"].values())
        assert list(summary["submit_seconds"]) == ["submit", "session", "executors", "agents", "first_step"]
        assert stages == sorted(stages), "each stage ends after the one before"
        assert summary["seconds_to_first_step"] == stages[-1]
        told = application(hadoop, id)
        assert (told["state"], told["finalStatus"]) == ("FINISHED", "SUCCEEDED")
        nothing_lives(id)
    finally:
        started.close()


def test_one_run_meets_a_rival_restarts_of_yarn_a_lost_executor_and_ctrl_c(hadoop: Hadoop, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    ledger = run_dir / "records.jsonl"

    def seen(kind: str, **wanted: object) -> list[dict]:
        found = records(ledger.read_text(), kind) if ledger.exists() else []
        return [one for one in found if all(one[key] == value for key, value in wanted.items())]

    train = (*GENTLE, str(tmp_path / "never"))
    run = submit(tmp_path, "--run-dir", str(run_dir), *train, sets=("objectives.max_time=20min",))
    rival = None
    try:
        run.until(lambda: len(seen("cycle")) > 3, "the first cycles")
        id = only(run.text())
        pids = {one["index"]: one["pid"] for one in seen("agent", event="started")}
        assert set(pids) == {0, 1}
        no_door_is_open(id, run, tmp_path)

        # a NodeManager goes and comes back, before YARN gives it up: its containers do not notice
        hadoop.restart("nodemanager1")
        cycles = len(seen("cycle"))
        rival = submit(tmp_path, "--resume", "auto", *train, sets=(f"run.dir={run_dir}",))
        run.until(lambda: len(seen("cycle")) > cycles + 3, "cycles after the restart of the node")
        assert not seen("agent", event="lost")
        assert all(psutil.pid_exists(pid) for pid in pids.values())

        # a second submit of the same run
        assert rival.ended() == 2
        assert "another driver writes here" in rival.text()
        assert f"owner=pid {_driver(run)} on" in rival.text().splitlines()[-1], "it names the owner"

        # the ResourceManager too: it finds its applications again, and they it
        cycles = len(seen("cycle"))
        hadoop.restart("resourcemanager")
        run.until(lambda: runs(hadoop, id), "the application runs for the new ResourceManager")
        run.until(lambda: len(seen("cycle")) > cycles + 3, "cycles after the restart of the ResourceManager")
        assert not seen("agent", event="lost")
        assert all(psutil.pid_exists(pid) for pid in pids.values())

        # an executor is killed: the application master has to be known to the new ResourceManager to get another
        victim = next(pid for pid in executors(id) if pid in [one.pid for one in psutil.Process(pids[1]).parents()])
        os.kill(victim, signal.SIGKILL)
        run.until(lambda: seen("agent", event="lost", index=1), "the loss is told")
        run.until(
            lambda: any(one["contributors"].get("1", {}).get("incarnation") == 1 for one in seen("cycle")),
            "its replacement takes part",
        )
        assert psutil.pid_exists(pids[0]), "the other one trained on"

        run.process.send_signal(signal.SIGINT)
        assert run.ended(60) == 130, run.text()[-4000:]
    finally:
        run.close()
        if rival is not None:
            rival.close()
    summary = json.loads((run_dir / "summary.json").read_text())
    where, report, model = run.said().splitlines()[-3:]
    assert where.startswith(f"interrupted: {summary['cycles']} cycles, ")
    assert (report, model) == (f"report {run_dir}/report.html", f"model  {run_dir}/model.safetensors")
    assert (summary["status"], summary["agents_lost"], summary["agents_replaced"]) == ("interrupted", 1, 1)
    assert [one["index"] for one in seen("agent", event="lost")] == [1], "its death alone, and once"
    assert (run_dir / "model.safetensors").exists()
    numbers = [one["cycle"] for one in seen("cycle")]
    assert numbers == list(range(len(numbers))), "no cycle was lost"
    nothing_lives(id)
    assert application(hadoop, id)["state"] == "FINISHED"


def no_door_is_open(id: str, run: Submitted, folder: Path) -> None:
    """What listens is Spark's: each of its ports wants a secret, and of the rest nobody is heard by another host."""
    shutil.copy(ROOT / "tests" / "spark" / "Intruder.java", folder)
    (folder / "jars").symlink_to(f"{spark_home().path}/jars")
    driver, parent = psutil.Process(_driver(run)), psutil.Process(run.process.pid)
    containers = [psutil.Process(int(line.split()[0])) for line in living(id)]
    sockets = [
        (process, one.laddr)
        for process in {*containers, parent, *parent.children(recursive=True)}
        for one in process.net_connections(kind="tcp")
        if one.status == psutil.CONN_LISTEN
    ]
    sparks = [(process, at) for process, at in sockets if process.name() == "java"]
    owners = {" ".join(process.cmdline()) for process, _ in sparks}
    mains = ("SparkSubmit", "YarnCoarseGrainedExecutorBackend")
    assert [main for main in mains if any(main in one for one in owners)] == [*mains], owners
    assert all(any(main in one for main in mains) for one in owners), "in client mode the application master listens nowhere"
    others = [(process, at) for process, at in sockets if process.name() != "java"]
    assert [process.pid for process, _ in others] == [driver.pid], "pyspark's accumulators, with a token; no agent listens"
    assert {at.ip for _, at in others} == {"127.0.0.1"}
    assert spark_client(folder, [at.port for _, at in sparks], ["", "a guess"], None) == []


def runs(hadoop: Hadoop, id: str) -> bool:
    """Whether it does for a ResourceManager that may still be reading what it knew."""
    with contextlib.suppress(OSError):
        return application(hadoop, id)["state"] == "RUNNING"
    return False


def _driver(run: Submitted) -> int:
    """Pid of the driver's Python, below Spark's JVM."""
    for one in psutil.Process(run.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # Spark's scripts leave zombies
            if any(word.endswith("mpca_run.py") for word in one.cmdline()[:3]):
                return one.pid
    raise AssertionError("no driver")
