"""`mpca dev hadoop`: what it says of a cluster that is up, and that a daemon comes back as it was."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mpca.cli.dev.daemons import DAEMONS
from mpca.cli.dev.hadoop import Hadoop

pytestmark = pytest.mark.hadoop
MPCA = [sys.executable, "-m", "mpca.cli"]


def dev(hadoop: Hadoop, command: str, code: int = 0) -> str:
    words = [*MPCA, "dev", "hadoop", command, "--dir", str(hadoop.folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_env_names_files_without_variables(hadoop: Hadoop) -> None:
    exports = dict(line.removeprefix("export ").split("=", 1) for line in dev(hadoop, "env").splitlines())
    assert exports["HADOOP_CONF_DIR"] == str(hadoop.folder / "conf")
    for path in (hadoop.folder / "conf").iterdir():
        assert "${" not in path.read_text()
        assert "@{" not in path.read_text()


def test_a_killed_daemon_is_seen_and_up_again_brings_it_back_alone(hadoop: Hadoop) -> None:
    before = {name: hadoop.pid(name) for name in DAEMONS}
    hadoop.kill("nodemanager2")
    assert "nodemanager2     down" in dev(hadoop, "status", code=1).splitlines()
    said = dev(hadoop, "up").splitlines()
    assert [line.split()[0] for line in said if "was up already" in line] == [one for one in DAEMONS if one != "nodemanager2"]
    assert {name for name in DAEMONS if hadoop.pid(name) != before[name]} == {"nodemanager2"}
    assert set(hadoop.status().values()) == {"ready"}
    nodes = hadoop.resourcemanager("nodes")["nodes"]["node"]
    assert {one["nodeHostName"] for one in nodes if one["state"] == "RUNNING"} == {"127.0.0.2", "127.0.0.3"}
    assert hadoop.jmx("FSNamesystemState")["NumLiveDataNodes"] == 2


def test_what_was_never_up_is_said_with_the_remedy(tmp_path) -> None:
    never = Hadoop(tmp_path / "never")
    assert set(never.status().values()) == {"down"}
    never.down()
    assert dev(never, "env", code=2) == ""
    assert not never.folder.exists()
