"""`mpca tune`: the search as a function of how runs ended, and the command with runs that need no Spark."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from mpca.cli import tune as module
from mpca.cli.tune import GRID, Tried, best, further
from mpca.errors import ConfigError
from mpca.records import Summary
from tests.cli.test_main import DIGITS, ROOT, run
from tests.report.synthetic import synthetic_records, write_run
from tests.support.fake_executor import wait_until

pytestmark = pytest.mark.long


def tried(alpha: float | str, error: float, target_s: float | None = None) -> Tried:
    return Tried(alpha, error, target_s, 20.0, 1000)


def test_who_reaches_the_target_is_better_than_who_has_a_small_error() -> None:
    assert best([tried(0.1, 0.01), tried(0.2, 0.02, 30.0), tried(0.3, 0.02, 20.0)]).alpha == 0.3
    assert best([tried("auto", 0.02), tried(0.1, 0.02)]).alpha == "auto"


@pytest.mark.parametrize(
    ("errors", "beyond"),
    [
        ({0.0125: 0.2, 0.025: 0.1, 0.05: 0.2}, None),
        ({0.0125: 0.1, 0.025: 0.2, 0.05: 0.3}, 0.00625),
        ({0.0125: 0.3, 0.025: 0.2, 0.05: 0.1}, 0.1),
        ({0.0125: 0.3, 0.025: 0.2, 0.6: 0.1}, None),  # an alpha of 14.4 is none
        ({0.0125: 0.3}, None),
    ],
)
def test_a_grid_is_extended_where_the_best_lies_at_its_edge(errors: dict[float, float], beyond: float | None) -> None:
    some = [tried("auto", 0.0), *(tried(alpha, error) for alpha, error in errors.items())]
    assert further(some, 3, 1.0) == beyond


def test_an_edge_is_followed_four_times_at_most() -> None:
    some = [tried(alpha, 1 - alpha) for alpha in (0.001, 0.002)]
    while (alpha := further(some, 2, math.inf)) is not None:
        some.append(tried(alpha, 1 - alpha))
    assert [one.alpha for one in some] == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032]


class Runs:
    """Stands for `mpca train`: writes what a run leaves."""

    def __init__(self, wanted: float) -> None:
        self.wanted, self.started = wanted, list[str]()
        self.dies_at = ""

    def __call__(self, conf: Path, sets: Sequence[str], path: Path) -> None:
        alpha = dict(one.split("=") for one in sets)["method.alpha"]
        self.started.append(alpha)
        if alpha == self.dies_at:
            path.mkdir()
            (path / "records.jsonl").write_text(f"of {path.name}\n")
            path.with_name(f"{path.name}.log").write_text("cut off\n")
            raise KeyboardInterrupt
        far = 3.0 if alpha == "auto" else abs(math.log2(float(alpha) / self.wanted))
        ended: dict[str, Any] = {"status": "max_time", "reason": "objectives.max_time", "final_error": far / 10 + 0.01}
        if far > 4:
            ended = {
                "status": "failed",
                "reason": "the parameters of all 4 agents are not finite in cycle 3",
                "final_error": None,
            }
        summary = Summary(method="mpca", num_agents=4, seed=0, seconds=60.0, seconds_to_first_step=1.0, samples=1234, **ended)
        write_run(path, synthetic_records(), asdict(summary))


def command(folder: Path, *args: str) -> tuple[str, ...]:
    return ("tune", DIGITS, "--set", "method.name=mpca", "--run-dir", str(folder), *args)


def test_the_best_alpha_is_the_last_line_to_be_pasted(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(0.025)
    monkeypatch.setattr(module, "_train", runs)
    code, out, _ = run(capfd, *command(tmp_path / "tune"))
    assert code == 0
    assert runs.started == ["auto", *map(str, GRID)]
    assert out.splitlines()[-1].startswith("alpha = 0.025    # [method] of ")
    assert "0.025 <" in out
    assert "1,234" in out
    code, out, _ = run(capfd, *command(tmp_path / "tune", "--json"))
    assert len(runs.started) == 7, "what was run is not run again"
    assert json.loads(out)["alpha"] == 0.025
    assert json.loads(out)["runs"][0]["n"] > 0


def test_a_start_goes_on_where_the_last_one_was_cut_off(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(0.05)
    runs.dies_at = "0.05"
    monkeypatch.setattr(module, "_train", runs)
    assert run(capfd, *command(tmp_path, "--alphas", "0.0125,0.025,0.05"))[0] == 130
    runs.dies_at = ""
    code, out, _ = run(capfd, *command(tmp_path, "--alphas", "0.0125,0.025,0.05"))
    assert code == 0
    assert runs.started == ["auto", "0.0125", "0.025", "0.05", "0.05", "0.1"]  # 0.05 lay at the edge
    assert out.splitlines()[-1].startswith("alpha = 0.05 ")


def test_what_was_cut_off_stays_and_the_next_attempt_takes_the_next_number(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, grid = Runs(0.05), ("--alphas", "0.025,0.05,0.1")
    monkeypatch.setattr(module, "_train", runs)
    runs.dies_at = "0.05"
    for _ in range(2):
        assert run(capfd, *command(tmp_path, *grid))[0] == 130
    kept = content(tmp_path)
    assert kept["alpha-0.05.2/records.jsonl"] == b"of alpha-0.05.2\n"
    runs.dies_at = ""
    assert run(capfd, *command(tmp_path, *grid))[0] == 0
    assert (tmp_path / "alpha-0.05.3" / "summary.json").is_file()
    assert kept.items() <= content(tmp_path).items()
    shutil.rmtree(tmp_path / "alpha-0.05")
    before = len(runs.started)
    code, out, _ = run(capfd, *command(tmp_path, *grid))
    assert (code, len(runs.started)) == (0, before), "the attempt that ended counts, whichever number it has"
    assert out.splitlines()[-1].startswith("alpha = 0.05 ")


def test_a_log_alone_is_an_attempt_too(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(conf: Path, sets: Sequence[str], path: Path) -> None:
        path.with_name(f"{path.name}.log").touch(exist_ok=False)
        raise ConfigError("no such data")

    monkeypatch.setattr(module, "_train", refuses)
    for number in (1, 2):
        assert run(capfd, *command(tmp_path))[0] == 2
        assert list(content(tmp_path)) == ["alpha-auto.2.log", "alpha-auto.log", "tune.json"][2 - number :]


def content(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


def _file(folder: Path) -> None:
    folder.write_text("mine")


def _nothing_there(folder: Path) -> None:
    folder.symlink_to(folder.parent / "gone")


def _somebodys(folder: Path) -> None:
    (folder / "alpha-0.05").mkdir(parents=True)
    (folder / "alpha-0.05" / "notes.txt").write_text("mine")


def _holds(text: bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        _somebodys(folder)
        (folder / "tune.json").write_bytes(text)

    return make


def _link(folder: Path) -> None:
    _somebodys(folder)
    (folder.parent / "other").write_bytes(b"")
    (folder / "tune.json").symlink_to(folder.parent / "other")


def _folder(folder: Path) -> None:
    (folder / "tune.json").mkdir(parents=True)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_file, "cannot be used: File exists"),
        (_nothing_there, "cannot be used: File exists"),
        (_somebodys, "is not empty and has no file tune.json"),
        (_link, "is not empty and has no file tune.json"),
        (_folder, "is not empty and has no file tune.json"),
        (_holds(b""), "its tune.json is empty"),
        (_holds(b'{"cut'), "its tune.json is damaged"),
        (_holds(b"\xff\xfe\x00"), "its tune.json is damaged"),
        (_holds(b"[]"), "has runs of another configuration"),
    ],
)
def test_a_folder_that_is_not_of_this_search_is_refused_and_left_as_it_was(
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], None],
    said: str,
) -> None:
    monkeypatch.setattr(module, "_train", runs := Runs(0.025))
    make(tmp_path / "mine")
    before, names = content(tmp_path), sorted(tmp_path.rglob("*"))
    code, out, err = run(capfd, *command(tmp_path / "mine"))
    assert (code, out, len(err)) == (2, "", 1)
    assert err[0].startswith(f"mpca: refused: --run-dir = '{tmp_path / 'mine'}': {said}")
    assert "choose a" in err[0]
    assert (content(tmp_path), sorted(tmp_path.rglob("*")), runs.started) == (before, names, [])


def test_two_searches_in_one_folder_do_not_mix(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(0.025)
    monkeypatch.setattr(module, "_train", runs)
    assert run(capfd, *command(tmp_path))[0] == 0
    with open(tmp_path / "tune.json") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        code, _, err = run(capfd, *command(tmp_path))
    assert code == 2
    assert "another mpca tune uses it" in err[-1]


def test_a_disk_that_takes_nothing_is_told_and_the_search_begins_once_it_does(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [sys.executable, "-m", "mpca.cli", *command(tmp_path / "tune")]
    done = subprocess.run(["bash", "-c", 'ulimit -f 0; exec "$@"', "bash", *words], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "cannot be used: File too large" in done.stderr
    monkeypatch.setattr(module, "_train", Runs(0.025))
    assert run(capfd, *command(tmp_path / "tune"))[0] == 0


def test_an_alpha_that_diverges_is_the_worst_and_not_the_end(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_train", Runs(0.01))
    code, out, _ = run(capfd, *command(tmp_path, "--alphas", "0.005,0.01,0.02,0.9"))
    assert code == 0
    assert "diverged" in out
    assert out.splitlines()[-1].startswith("alpha = 0.01 ")


def test_runs_of_another_configuration_are_not_mixed(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_train", Runs(0.025))
    assert run(capfd, *command(tmp_path))[0] == 0
    for other in (["--time", "30s"], ["--set", "optimizer.lr=0.01"]):
        code, _, err = run(capfd, *command(tmp_path, *other))
        assert code == 2
        assert "--run-dir = " in err[-1]
        assert "choose another one" in err[-1]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--set", "method.name=sync"], "mpca tune looks for alpha: set method.name"),
        (["--set", "method.correction=true"], "alpha is not used in this form"),
        (["--alphas", "0.1,2"], "method.alpha = 2"),
        (["--alphas", "0.1"], "it needs two numbers or more"),
        (["--alphas", "a,b"], "not a list of numbers"),
        (["--time", "0s"], "--time = 0"),
    ],
)
def test_what_cannot_be_tuned_is_refused(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], said: str
) -> None:
    monkeypatch.setattr(module, "_train", Runs(0.025))
    code, _, err = run(capfd, *command(tmp_path / "tune", *args))
    assert code == 2
    assert said in " ".join(err)
    assert not (tmp_path / "tune").exists()


def test_a_refused_run_is_told_as_train_tells_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such model"):
        module._train(Path(DIGITS), ("model.name=digits_convnot",), tmp_path / "run")


#: Stands for `mpca train`: told to end, it takes a while to save, and says what it was told. Or it is deaf.
TRAINS = """#!{python}
import os, signal, sys, time
from pathlib import Path
folder, told = Path(sys.argv[sys.argv.index("--run-dir") + 1]), []
for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(one, lambda number, _: told.append(number))
folder.mkdir()
(folder / "pid.new").write_text(str(os.getpid()))
(folder / "pid.new").rename(folder / "pid")
while not told or {deaf}:
    time.sleep(0.02)
time.sleep(0.5)
(folder / "told.new").write_text(str(told))
(folder / "told.new").rename(folder / "told")
sys.exit(128 + told[0])
"""
#: `mpca tune` as it is, but for the program that it starts, and its patience.
TUNES = """
import sys
from mpca.cli import main
sys.executable, sys.modules["mpca.cli.tune"].RUN_END_S = sys.argv[1], float(sys.argv[2])
main(sys.argv[3:])
"""


@contextmanager
def tuning(
    folder: Path, deaf: bool = False, patience_s: float = 30.0
) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """A search whose first run goes on, and the run; each leads a process group of its own."""
    program, started = folder / "trains", folder / "tune" / "alpha-auto" / "pid"
    program.write_text(TRAINS.format(python=sys.executable, deaf=deaf))
    program.chmod(0o700)
    words = [sys.executable, "-c", TUNES, str(program), str(patience_s), *command(folder / "tune")]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True) as process:
        try:
            wait_until(lambda: started.exists() or process.poll() is not None, "the run has begun", 60.0)
            trains = psutil.Process(int(started.read_text()))
            yield process, trains
        finally:
            process.kill()
            if started.exists():
                with suppress(psutil.NoSuchProcess):
                    trains.kill()


@pytest.mark.parametrize("send", [os.kill, os.killpg])  # a terminal signals the whole group
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_search_that_is_asked_to_end_lets_its_run_save_first(
    tmp_path: Path, signum: int, code: int, send: Callable[[int, int], None]
) -> None:
    with tuning(tmp_path) as (process, trains):
        send(process.pid, signum)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said.strip()) == (code, f"mpca: {signal.Signals(signum).name}")
        assert not trains.is_running()
    assert (tmp_path / "tune" / "alpha-auto" / "told").read_text() == f"[{signum:d}]"


def test_a_run_ends_with_a_search_that_is_killed(tmp_path: Path) -> None:
    told = tmp_path / "tune" / "alpha-auto" / "told"
    with tuning(tmp_path) as (process, _):
        process.kill()
        wait_until(told.exists, "the run was told", 30.0)
    assert told.read_text() == f"[{signal.SIGTERM:d}]"


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_does_not_end_is_killed_in_the_end(tmp_path: Path, signum: int, code: int) -> None:
    with tuning(tmp_path, deaf=True, patience_s=0.5) as (process, trains):
        process.send_signal(signum)
        assert process.wait(60) == code
        assert not trains.is_running()


def test_a_search_that_is_stopped_leaves_its_run_at_work(tmp_path: Path) -> None:
    with tuning(tmp_path) as (process, trains):
        os.killpg(process.pid, signal.SIGSTOP)  # as Ctrl-Z does; agents have groups of their own and go on
        stopped = psutil.Process(process.pid)
        wait_until(lambda: stopped.status() == psutil.STATUS_STOPPED, "the search has stopped", 30.0)
        assert trains.status() != psutil.STATUS_STOPPED
        process.terminate()
        os.killpg(process.pid, signal.SIGCONT)
        assert process.wait(60) == 143


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_alphas_on_real_executors(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    few = ("--set", "cluster.agents=2", "--set", "objectives.target_error=0", "--time", "5s", "--alphas", "0.02,0.05")
    code, out, _ = run(capfd, *command(tmp_path / "tune", *few, "--json"))
    assert code == 0
    found = json.loads(out)
    assert {"auto", 0.02, 0.05} <= {one["alpha"] for one in found["runs"]}
    assert all(one["error"] < 0.5 and one["n"] > 1 for one in found["runs"])
