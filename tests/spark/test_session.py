"""Sessions of their own: other settings of Spark, nothing left behind, and a driver that is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyspark
import pytest
from pyspark.accumulators import _start_update_server

from mpca.errors import ConfigError, RunFailed
from mpca.spark.jvm.jar import LINES, own_line
from mpca.spark.run.session import _set_aside, check_executors, limit_reads, session
from tests.spark.alone import SECRETS
from tests.spark.support import ROOT, alive

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

STRICT = {
    "spark.shuffle.readHostLocalDisk": "false",  # a shuffle takes the network, as between hosts
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrationRequired": "true",
    "spark.authenticate": "true",
    "spark.authenticate.secret": SECRETS[0],
    "spark.hadoop.a.password": SECRETS[1],
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
    "spark.task.maxFailures": "1",  # Spark repeats no task; mpca submits a job anew by itself
}


def alone(work_dir: Path, conf: dict[str, str], end: str = "end") -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.alone", str(work_dir), json.dumps(conf), end],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("cipher", ["AES/CTR/NoPadding", "AES/GCM/NoPadding"], ids=["ctr", "gcm"])
def test_under_kryo_authentication_and_encryption(tmp_path, cipher: str) -> None:
    """The second one is what SECURITY.md recommends."""
    before = _installed()
    process = alone(tmp_path, {**STRICT, "spark.network.crypto.cipher": cipher})
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert json.loads(output) == {
        "ranges": {"same_bytes": True, "acknowledged": [0, 1]},
        "tree": {"same_bytes": True, "acknowledged": [0, 1]},
        "arguments": [],
        "serializer": STRICT["spark.serializer"],
        "after a loss": {"left": [0], "replaced": [0, 1]},
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


def test_the_jvms_own_words_are_told_of_a_start_that_fails(tmp_path) -> None:
    """The message of a Java exception lies in the JVM, which is gone when somebody prints it."""
    conf = {"spark.extraListeners": "org.nowhere.Listener", "spark.hadoop.a.password": "Listener"}
    start = f"from mpca.spark.run.session import session\nwith session({str(tmp_path)!r}, executors=1, conf={conf}): pass"
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, timeout=120)
    said = done.stderr.splitlines()[-1]
    assert re.search(r"EnvironmentRefused: Spark does not start: .*ClassNotFoundException: org\.nowhere\.\*\*\*$", said), said
    assert list(tmp_path.iterdir()) == []


def test_the_jar_for_another_scala_is_refused_by_its_name(tmp_path) -> None:
    (other,) = [line.jar for line in LINES if line != own_line()]
    conf = {"spark.driver.extraClassPath": str(other)}
    start = f"from mpca.spark.run.session import session\nwith session({str(tmp_path)!r}, executors=1, conf={conf}): pass"
    done = subprocess.run([sys.executable, "-c", start], cwd=ROOT, capture_output=True, text=True, timeout=120)
    said = done.stderr.splitlines()[-1]
    assert re.search(rf"Spark does not start: .*{re.escape(other.name)} does not fit this Spark, which has Scala 2\.1", said), (
        said
    )


def test_a_jvm_that_does_not_start_says_why_in_one_line(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    words = [sys.executable, "-m", "mpca.cli", "train", str(ROOT / "conf" / "digits.toml"), "--run-dir", str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert said.startswith("mpca: refused: the driver's JVM did not start: ")
    assert said.endswith(
        f": /nonexistent/bin/java: No such file or directory; {own_line().java} must be on PATH or in JAVA_HOME"
    )
    assert list(tmp_path.iterdir()) == []


def test_executors_that_end_again_and_again_end_the_run_with_the_first_ones_words(tmp_path) -> None:
    """What a Worker leaves of executors: a folder each, numbered."""
    conf = {"spark.executorEnv.API_TOKEN": "-Dkey=abc1", "spark.executor.memory": "512m"}
    for number in range(8):
        log = tmp_path / "spark" / "work" / "app-2026-0000" / str(number) / "stderr"
        check_executors(tmp_path, 2, conf)  # as yet there is hope
        log.parent.mkdir(parents=True)
        said = f'Spark Executor Command: "java"\n{40 * "="}\nInvalid option: -Dkey=abc{number}\n'
        log.write_text("" if number == 0 else said)
    with pytest.raises(
        RunFailed, match=r"^executors do not start: 8 were, and none has come; .* says: Invalid option: \*\*\*$"
    ):
        check_executors(tmp_path, 2, conf)


def test_a_connection_that_says_nothing_more_keeps_no_session_from_ending(capfd) -> None:
    """pyspark's own server, which reads the token of whoever connects."""
    server = _start_update_server("a token of this test", *[False] * (own_line().spark >= "4"))  # no socket of Unix, in Spark 4
    limit_reads(server, 0.2)
    ended = threading.Thread(target=server.shutdown, daemon=True)
    with socket.create_connection(server.server_address) as stranger:
        stranger.sendall(b"a")
        until = time.monotonic() + 10
        while "TimeoutError" not in capfd.readouterr().err:  # its token was being read
            assert time.monotonic() < until
            time.sleep(0.05)
        ended.start()
        ended.join(10)
    assert not ended.is_alive()


def test_a_session_of_another_kind_and_the_terminals_interrupt_come_back_as_they_were(monkeypatch) -> None:
    """With the first two pyspark makes no SparkContext; with the third it takes spark-submit's JVM, and we would end it."""
    before = signal.getsignal(signal.SIGINT)
    told = {"SPARK_CONNECT_MODE_ENABLED": "1", "SPARK_REMOTE": "sc://host", "PYSPARK_GATEWAY_PORT": "1"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    with _set_aside():
        assert not told.keys() & os.environ.keys()
        signal.signal(signal.SIGINT, signal.default_int_handler if before == signal.SIG_IGN else signal.SIG_IGN)
    assert told.items() <= os.environ.items()
    assert signal.getsignal(signal.SIGINT) is before


def _installed() -> set[str]:
    folder = Path(pyspark.__file__).parent
    return {str(path) for path in folder.rglob("*") if "__pycache__" not in path.parts}


@pytest.mark.timeout(400)
def test_a_notebook_trains_beside_its_own_session_and_after_it(tmp_path) -> None:
    command = [sys.executable, "-m", "tests.spark.notebook", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=350)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [one.name for one in tmp_path.iterdir()] == ["run"], "what was refused left nothing"
