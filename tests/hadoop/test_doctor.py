"""`mpca doctor`, and what `mpca submit` refuses, on a cluster that is there: before a container is asked for."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from mpca.cli.dev.hadoop import Hadoop
from mpca.environment import child_environment
from mpca.storage import Backups, Location
from mpca.storage.webhdfs import WebHdfsStore
from tests.hadoop.support import DIGITS, MPCA
from tests.storage.test_backup import state

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


def run(*words: str, **env: str) -> tuple[int, str, str]:
    """Exit code, stdout, and the last line of stderr."""
    done = subprocess.run([*MPCA, *words], capture_output=True, text=True, env=child_environment(**env))
    return done.returncode, done.stdout, (done.stderr.strip().splitlines() or [""])[-1]


@pytest.fixture(autouse=True)
def no_application_is_asked_for(hadoop: Hadoop) -> None:
    """Every test here leaves YARN as it was; ids of applications are used up, but none is submitted."""
    before = hadoop.resourcemanager("metrics")["clusterMetrics"]["appsSubmitted"]
    yield
    assert hadoop.resourcemanager("metrics")["clusterMetrics"]["appsSubmitted"] == before


def test_a_cluster_that_is_ready(hadoop: Hadoop, folder: str) -> None:
    code, out, _ = run("doctor", "--run-dir", f"{hadoop.hdfs_url}{folder}/runs")
    assert code == 0, out
    levels = {line[7:26].strip(): line.split(None, 1)[0] for line in out.splitlines()}
    assert {name for name, level in levels.items() if level == "ok"} == {
        *("jar", "Python", "Spark", "Java", "login", "Hadoop", "nodes", "largest container", "queue", "virtual memory"),
        *("attempts", "node expiry", "HDFS", "space", "clock"),
    }
    assert levels["GPUs"] == "note", "these nodes have none, and say so"


def test_what_would_stop_a_run_is_named_and_is_the_exit_code(hadoop: Hadoop) -> None:
    code, out, _ = run("doctor", "--queue", "defalt", "--run-dir", f"{hadoop.hdfs_url}/system/runs", HADOOP_USER_NAME="ann")
    assert code == 1
    stops = [line for line in out.splitlines() if line.startswith("stop")]
    assert len(stops) == 2
    assert "no such queue: --queue defalt; did you mean 'default'?" in stops[0]
    assert f"cannot write in {hadoop.hdfs_url}/system/runs" in stops[1]
    assert "user=ann" in stops[1]
    assert re.search("note +user name +HADOOP_USER_NAME = ann is who you are here: without Kerberos, the cluster believes", out)


@pytest.mark.parametrize(
    ("words", "user", "said"),
    [
        (["--queue", "defalt"], "", "no such queue: --queue defalt; did you mean 'default'?"),
        (["--set", "cluster.executor_memory=9GiB"], "", "executor container of 11.5 GiB is more than the largest that YARN"),
        (
            ["--set", "cluster.agents=9", "--set", "cluster.agents_per_executor=9", "--set", "cluster.agent_memory=256MiB"],
            "",
            "executor container of 18 cores is more than the largest that YARN",
        ),
        (["--set", "run.dir={hdfs}/system/run"], "ann", "run.dir is not writable: {hdfs}/system/run: "),
        (["--set", "cluster.device=cuda"], "", "YARN here counts no yarn.io/gpu"),
    ],
)
def test_submit_refuses_before_submission(hadoop: Hadoop, words: list[str], user: str, said: str) -> None:
    sets = ["--set", "cluster.agents=2"] if "cluster.agents=9" not in words else []
    names = {"HADOOP_USER_NAME": user} if user else {}
    code, out, err = run(
        "submit", str(DIGITS), "--jars-on-nodes", *sets, *(word.format(hdfs=hadoop.hdfs_url) for word in words), **names
    )
    assert code == 2
    assert err.startswith("mpca: refused: ")
    assert (f"warning: HADOOP_USER_NAME = {user} is who you are here" in out) is bool(user)
    assert said.format(hdfs=hadoop.hdfs_url) in err


def test_a_backup_of_another_model_is_refused_before_submission(hadoop: Hadoop, folder: str, tmp_path: Path) -> None:
    store = WebHdfsStore(Location.parse(hadoop.webhdfs_url + folder))
    there = Backups(store, "backups").write(state(2)).name
    store.close()
    run_dir = f"{hadoop.hdfs_url}{folder}"
    path = f"{run_dir}/backups/{there}"
    other = f"the backup is of another model: path={path}, it has conv.weight [40, 64] where this model has "
    for resume, said in ((path, other), (f"{path}0", f"no such backup: --resume {path}0"), ("auto", other)):
        words = ["--set", "cluster.agents=2", "--set", f"run.dir={run_dir}", "--resume", resume]
        code, _, err = run("submit", str(DIGITS), "--jars-on-nodes", *words)
        assert code == 2
        assert said in err


def test_nobody_answers(hadoop: Hadoop, tmp_path: Path) -> None:
    """A configuration of a cluster that is down."""
    for path in hadoop.setup.conf.iterdir():
        text = path.read_text().replace(f":{hadoop.setup.ports['resourcemanager_rpc']}<", ":1<")
        (tmp_path / path.name).write_text(text)
    code, _, err = run("submit", str(DIGITS), HADOOP_CONF_DIR=str(tmp_path), YARN_CONF_DIR=str(tmp_path))
    assert code == 2
    assert "no ResourceManager answers at 127.0.0.1:1" in err
    code, out, _ = run("doctor", HADOOP_CONF_DIR=str(tmp_path), YARN_CONF_DIR=str(tmp_path))
    assert code == 1
    (stop,) = (line for line in out.splitlines() if line.startswith("stop"))  # and not one for each question, 15 s apart
    assert "no ResourceManager answers at 127.0.0.1:1" in stop
    assert f"written, renamed and read in {hadoop.hdfs_url}" in out, "HDFS is asked all the same"
