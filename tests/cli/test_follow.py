"""Following a spark-submit whose terminal goes away. The submitter here is a script, and no cluster is asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from mpca.cli.follow import follow
from mpca.spark.jvm.hadoop import SparkHome
from tests.support.fake_executor import wait_until

REPORT = "26/01/01 00:00:00 INFO Client: Application report for application_7_0001 (state: RUNNING)"
#: Says what spark-submit says, and stays until it is told to end; in client mode it has a driver below it.
SUBMITTER = f"""
import signal, subprocess, sys
if sys.argv[2:] == ["driver"]:
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    open(sys.argv[1] + ".driver", "w").close()
    signal.pause()
child = None
if "client" in sys.argv:
    child = subprocess.Popen([sys.executable, __file__, sys.argv[1], "driver"])
print({REPORT!r}, file=sys.stderr, flush=True)
open(sys.argv[1], "w").close()
sys.exit(child.wait()) if child else signal.pause()
"""


#: A driver in client mode that is over while Spark still ends; all goes to one file.
ENDING = """
import sys
print("run folder /runs/a b", flush=True)
print("[agent 0] failed: 3 cycles, 1s of training", flush=True)
print("saving the joint model", flush=True)
print("{status}: error 2.50 %, 7 cycles, 12.1s of training", flush=True)
print("report /runs/a b/report.html", flush=True)
print("model  /runs/a b/model.safetensors", flush=True)
print("mpca: the root cause", file=sys.stderr, flush=True) if {code} else None
print("26/01/01 00:00:00 WARN Spark: still ending", file=sys.stderr, flush=True)
print("model 229.7 KiB, shards of 76.6 KiB", flush=True)
sys.exit({code})
"""
FOLLOW = """
import sys
from pathlib import Path
from mpca.cli.follow import follow
from mpca.spark.jvm.hadoop import SparkHome
from mpca.streams import sturdy_streams
with sturdy_streams():
    code = follow([sys.executable, sys.argv[1]], "client", "ending.py", SparkHome(Path("/")), lambda application: "")
sys.exit(code)
"""


@pytest.mark.parametrize(("status", "code"), [("reached", 0), ("failed", 1)])
def test_the_last_lines_say_how_the_run_went_and_the_root_cause_is_the_very_last(
    tmp_path: Path, status: str, code: int
) -> None:
    (tmp_path / "ending.py").write_text(ENDING.format(status=status, code=code))
    words = [sys.executable, "-c", FOLLOW, str(tmp_path / "ending.py")]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert done.returncode == code
    *before, status_line, report, model = [one for one in done.stdout.splitlines() if one != "mpca: the root cause"]
    assert [status_line, report, model] == [
        f"{status}: error 2.50 %, 7 cycles, 12.1s of training",
        "report /runs/a b/report.html",
        "model  /runs/a b/model.safetensors",
    ]
    assert {"[agent 0] failed: 3 cycles, 1s of training", "model 229.7 KiB, shards of 76.6 KiB"} <= set(before)
    assert "26/01/01 00:00:00 WARN Spark: still ending" in before
    assert done.stdout.endswith("mpca: the root cause\n") == bool(code)


@pytest.mark.parametrize(
    ("mode", "words"), [("cluster", "the terminal is gone, and application_7_0001 goes on"), ("client", "exit code 129")]
)
def test_a_terminal_that_is_gone_ends_the_following_and_in_client_mode_the_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], mode: str, words: str
) -> None:
    program, began = tmp_path / "submitter.py", tmp_path / "began"
    program.write_text(SUBMITTER)
    last = began if mode == "cluster" else tmp_path / "began.driver"
    seen = []

    def hang_up() -> None:
        wait_until(lambda: last.exists() and began.exists(), "the submitter's report", 60.0)
        wait_until(lambda: seen.append(capfd.readouterr()) or "application_7_0001 RUNNING" in "".join(o for o, _ in seen), "it")
        for _ in range(3):  # the kernel's two, and the shell's
            os.kill(os.getpid(), signal.SIGHUP)

    before = signal.getsignal(signal.SIGHUP)
    sender = threading.Thread(target=hang_up)
    sender.start()
    home = SparkHome(tmp_path)
    code = follow([sys.executable, str(program), str(began), mode], mode, program.name, home, lambda application: "")
    sender.join()
    assert code == 129
    assert words in capfd.readouterr().err
    assert signal.getsignal(signal.SIGHUP) == before
    assert [one for one in psutil.Process().children() if str(program) in one.cmdline()] == []
