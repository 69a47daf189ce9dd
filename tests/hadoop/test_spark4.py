"""The core of the tests on real executors once more, with Spark 4: runs and losses, a session and its
pages, a run on YARN and HDFS.

All others run with the pyspark 3.5 of `make setup`, as most clusters do. Here pyspark 4.1 lies in an environment of its own,
before the packages of this one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpca.cli.dev.hadoop import Hadoop
from mpca.storage import Location
from mpca.storage.webhdfs import WebHdfsStore
from tests.hadoop.support import DIGITS, ROOT, SMALL, Submitted, application, end_applications, nothing_lives, only
from tests.test_wheel import uv

CORE = (
    "tests/spark/test_engine_training.py::test_the_run_ends_at_its_objective",
    "tests/spark/test_engine_training.py::test_joint_states_are_those_of_equations_4_to_9",
    "tests/spark/test_engine_losing.py::test_a_killed_agent_is_replaced[true]",
    "tests/spark/test_engine_losing.py::test_an_executor_killed_between_materialising_and_summing",
    "tests/spark/test_cluster.py::test_a_wrong_transport_is_refused",
    "tests/spark/test_session.py::test_the_jar_for_another_scala_is_refused_by_its_name",
)
#: As root, who alone can become another user: the filter of Spark's pages, the one class that each Spark has of its own.
PAGES = (
    "tests/spark/test_other_users.py::test_another_user_gets_in_nowhere",
    "tests/spark/test_other_users.py::test_the_owner_sees_the_pages",
)

pytestmark = [pytest.mark.hadoop, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    venv = tmp_path_factory.mktemp("spark4") / "venv"
    python = venv / "bin" / "python"
    subprocess.run([*uv(), "venv", "--quiet", "--python", sys.executable, str(venv)], check=True)
    (own,) = venv.glob("lib/python*/site-packages")
    beneath = [path for path in sys.path if path.endswith("site-packages")]
    lines = [str(ROOT), *(f"import site; site.addsitedir({path!r})" for path in beneath)]
    (own / "beneath.pth").write_text("\n".join(lines) + "\n")
    install = [*uv(), "pip", "install", "--quiet", "--no-deps", "--python", str(python), "pyspark==4.1.*"]
    subprocess.run(install, check=True, timeout=400)
    yield python
    shutil.rmtree(venv)


def test_the_core_passes_with_pyspark_4(python: Path, tmp_path: Path) -> None:
    asked = "import pyspark; from mpca.spark.jvm.jar import own_line; print(pyspark.__version__, own_line().jar.name)"
    said = subprocess.run([str(python), "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()
    assert said[0].startswith("4.1.")
    assert said[1] == "mpca-spark_2.13.jar"
    chosen = (*CORE, *(PAGES if os.geteuid() == 0 else ()))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    options = ("-q", "-p", "no:cacheprovider", "--durations=9", f"--basetemp={tmp_path / 'temp'}")
    command = [str(python), "-m", "pytest", *options, *chosen]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    assert done.returncode == 0
    passed = re.search(r"^(\d+) passed in", done.stdout, re.MULTILINE)
    assert passed is not None, "none is skipped"
    assert int(passed[1]) == len(chosen)


def test_a_run_is_submitted_to_yarn_and_its_folder_is_on_hdfs(
    python: Path, hadoop: Hadoop, folder: str, tmp_path: Path
) -> None:
    sets = (*SMALL, f"run.dir={hadoop.hdfs_url}{folder}/run", "objectives.target_error=0", "objectives.max_cycles=12")
    words = [word for one in sets for word in ("--set", one)]
    command = [str(python), "-m", "mpca.cli", "submit", str(DIGITS), "--jars-on-nodes", *words]
    run = Submitted(*command, cwd=tmp_path, log=tmp_path / "submit.log")
    try:
        assert run.ended() == 0, run.text()[-4000:]
    finally:
        run.close()
        end_applications(hadoop)
    assert "mpca-spark_2.13.jar" in run.said(), "in the line"
    id = only(run.text())
    assert application(hadoop, id)["finalStatus"] == "SUCCEEDED"
    nothing_lives(id)
    store = WebHdfsStore(Location.parse(f"{hadoop.webhdfs_url}{folder}/run"))
    try:
        assert json.loads(store.read("summary.json"))["cycles"] == 12
        assert {"backups", "model.safetensors", "records.jsonl"} <= set(store.names(""))
    finally:
        store.close()
