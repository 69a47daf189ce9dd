"""Sessions of their own: other settings of Spark, nothing left behind, and a driver that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest

from mpca.errors import ConfigError
from mpca.spark.session import session
from tests.spark.support import ROOT, alive

pytestmark = pytest.mark.spark

STRICT = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrationRequired": "true",
    "spark.authenticate": "true",
    "spark.authenticate.secret": "a secret of this test",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}


def alone(work_dir: Path, conf: dict[str, str], end: str = "end") -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.alone", str(work_dir), json.dumps(conf), end],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_under_kryo_authentication_and_encryption(tmp_path) -> None:
    before = _installed()
    process = alone(tmp_path, STRICT)
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert json.loads(output) == {
        "ranges": {"same_bytes": True, "acknowledged": [0, 1]},
        "tree": {"same_bytes": True, "acknowledged": [0, 1]},
        "serializer": STRICT["spark.serializer"],
    }
    assert list(tmp_path.iterdir()) == []
    assert _installed() == before, "files were left in the installed pyspark"


def test_nothing_lives_on_after_a_killed_driver(tmp_path) -> None:
    process = alone(tmp_path, {}, "hang")
    line = process.stdout.readline()
    assert line, process.stderr.read()
    pids = json.loads(line)["pids"]
    assert len(pids) == 5
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    until = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.1)
    assert [pid for pid in pids if alive(pid)] == []


def test_a_bad_setting_is_refused_before_anything_is_started(tmp_path) -> None:
    with (
        pytest.raises(ConfigError, match=r"spark\.speculation"),
        session(tmp_path, executors=1, conf={"spark.speculation": "true"}),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def _installed() -> set[str]:
    folder = Path(pyspark.__file__).parent
    return {str(path) for path in folder.rglob("*") if "__pycache__" not in path.parts}
