"""What becomes of a command whose stdout is closed, full or gone: its work is done, and its exit code tells what it must."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mpca.records import read_summary
from tests.cli.test_backups import write
from tests.cli.test_train_digits import MPCA, ROOT, living, wait_for
from tests.report.synthetic import synthetic_records, write_run
from tests.support.fake_executor import wait_until

DIGITS = str(ROOT / "conf" / "digits.toml")


def shell(streams: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command with these redirections; of what they leave, stderr is kept."""
    return subprocess.run(["bash", "-c", f'exec "$@" {streams}', "bash", *words], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("streams", "code", "last"),
    [
        ("> /dev/full", 1, "mpca: stdout: No space left on device"),
        (">&-", 1, "mpca: stdout: Bad file descriptor"),
        (">&- 2>&-", 1, ""),
        ("> /dev/null 2>&-", 0, ""),
        ("2> /dev/full", 0, ""),
    ],
)
def test_what_was_asked_for_and_cannot_be_printed_is_told(tmp_path: Path, streams: str, code: int, last: str) -> None:
    write(tmp_path, 3)
    ended = shell(streams, *MPCA, "backups", "list", str(tmp_path), "--json")
    assert ended.returncode == code
    assert (ended.stderr.strip().splitlines() or [""])[-1] == last


def test_a_reader_who_has_seen_enough_is_told_nothing(tmp_path: Path) -> None:
    write(tmp_path, 3)
    read, out = os.pipe()
    os.close(read)
    ended = subprocess.run([*MPCA, "backups", "list", str(tmp_path)], stdout=out, stderr=subprocess.PIPE, timeout=120)
    os.close(out)
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_a_report_is_drawn_whether_or_not_its_path_can_be_printed(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", synthetic_records(cycles=5))
    ended = shell("> /dev/full", *MPCA, "report", str(run_dir))
    assert (ended.returncode, ended.stderr) == (1, "mpca: stdout: No space left on device\n")
    assert (run_dir / "report.html").is_file()


#: `mpca train` as it is, but for the run itself.
ENDED = """
import sys
from pathlib import Path
from mpca.api.launch import Ended
from mpca.cli import main
train = sys.modules["mpca.cli.train"]
train._job = lambda *_: None
train.show_run = lambda job: Ended(Path("/runs/a"), {"status": "reached"}, "", int(sys.argv[2]), {}, [])
main(["train", sys.argv[1], "--json"])
"""


@pytest.mark.parametrize(
    ("streams", "run", "code", "words"),
    [
        ("> /dev/full", 0, 1, "mpca: stdout: No space left on device; the summary is in /runs/a/summary.json"),
        (">&-", 0, 1, "mpca: stdout: Bad file descriptor; the summary is in /runs/a/summary.json"),
        ("> /dev/full", 143, 143, "mpca: stdout: No space left on device; the summary is in /runs/a/summary.json"),
        ("", 0, 0, ""),
        ("2>&-", 0, 0, ""),
    ],
)
def test_a_summary_that_cannot_be_written_is_told_by_the_exit_code(streams: str, run: int, code: int, words: str) -> None:
    ended = shell(streams, sys.executable, "-c", ENDED, DIGITS, str(run))
    assert ended.returncode == code
    assert ended.stderr.strip() == words
    if not words:
        assert json.loads(ended.stdout) == {"run_dir": "/runs/a", "status": "reached"}


# ---- real runs ---------------------------------------------------------------------------------------------------------


def small(run_dir: Path, *sets: str) -> list[str]:
    """The smallest run there is: one agent, its own model."""
    words = [*MPCA, "train", DIGITS, "--run-dir", str(run_dir)]
    alone = ("cluster.agents=1", "cluster.min_agents=1", "model.name=digits_mlp", "method.name=single")
    for one in (*alone, "objectives.target_error=0", *sets):
        words += ["--set", one]
    return words


class Forked:
    """A process in a session and a terminal of its own, as a login gives it."""

    def __init__(self, words: list[str]) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execv(words[0], words)  # noqa: S606 - as a shell would
        self._code: int | None = None
        self._gone = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def poll(self) -> int | None:
        if self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if ended else None
        return self._code

    def communicate(self) -> str:
        return "it ended"

    def hang_up(self) -> None:
        """The terminal is gone: the kernel tells the processes in it."""
        self._gone.set()
        self._reader.join()
        os.close(self.terminal)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # EIO: the process has ended, and nobody else holds the other end
            while not self._gone.is_set():
                if select.select([self.terminal], [], [], 0.1)[0]:
                    os.read(self.terminal, 1 << 16)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_terminal_that_vanishes_ends_the_run_in_order(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    process = Forked(small(run_dir))
    try:
        wait_for(run_dir, "cycle", 1, process, seconds=300)  # type: ignore[arg-type]
    finally:
        process.hang_up()
        wait_until(lambda: process.poll() is not None, "the end of the run", 60.0)
    assert process.poll() == 128 + signal.SIGHUP
    summary = read_summary(run_dir / "summary.json")
    assert (summary.status, summary.reason) == ("interrupted", "SIGHUP")
    assert (run_dir / "model.safetensors").is_file()
    assert not (run_dir / "spark").exists()
    wait_until(lambda: living(process, run_dir) == [], "the end of all its processes")  # type: ignore[arg-type]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_under_nohup_a_run_needs_neither_its_terminal_nor_its_reader(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    words = ["nohup", *small(run_dir, "objectives.max_cycles=40")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("run folder ")
    process.stdout.close()  # as `| head -1` does
    wait_for(run_dir, "cycle", 1, process, seconds=300)
    os.kill(process.pid, signal.SIGHUP)
    assert process.wait(240) == 0
    assert process.stderr is not None
    with process.stderr as err:
        assert "Traceback" not in err.read()
    assert read_summary(run_dir / "summary.json").status == "max_cycles"
    assert (run_dir / "model.safetensors").is_file()
    wait_until(lambda: living(process, run_dir) == [], "the end of all its processes")
