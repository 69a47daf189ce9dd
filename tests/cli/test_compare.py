"""`mpca compare` as a person calls it: real processes, a kill in the middle, and the same numbers whatever happens."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.cli.test_main import ROOT, run
from tests.support.fake_executor import wait_until

pytestmark = pytest.mark.long

CONF = """
[compare]
ratios = ["ResNet-110"]
agents = [2]
rates = [0.002, 0.008]
trials = 3
rounds = 1
updates = 24
single_updates = 40
seeds = 2
tuning_seeds = 1
points = 4
tested = 100

[[method]]
name = "single"

[[method]]
name = "sync"
tau = 5

[[method]]
name = "mpca"
control = true
"""


def lines(folder: Path) -> list[str]:
    return (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("conf") / "small.toml"
    path.write_text(CONF, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def one(conf: Path) -> tuple[Path, dict[str, object]]:
    """A comparison by one process: its folder, and what it printed."""
    folder = conf.parent / "one"
    command = [sys.executable, "-m", "mpca.cli", "compare", str(conf), "--run-dir", str(folder), "--processes", "1", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return folder, json.loads(done.stdout)


def test_every_row_says_what_it_is(one: tuple[Path, dict[str, object]]) -> None:
    _, result = one
    rows = result["rows"]
    assert isinstance(rows, list)
    assert [row["label"] for row in rows] == ["single", "sync", "mpca"]
    assert {row["kind"] for row in rows} == {"simulated, no codec"}
    assert [row["control"] for row in rows] == [False, False, True]
    assert len({row["trials"] for row in rows}) == 1
    assert {"rows", "transport", "formula", "source"} == set(result["formulas"][0])  # type: ignore[index]


def test_two_processes_and_a_kill_bring_the_same_numbers(
    capfd: pytest.CaptureFixture[str], conf: Path, one: tuple[Path, dict[str, object]], tmp_path: Path
) -> None:
    folder, result = one
    command = [sys.executable, "-m", "mpca.cli", "compare", str(conf), "--run-dir", str(tmp_path), "--processes", "2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    deadline = time.monotonic() + 120
    while not (tmp_path / "results.jsonl").exists() or len(lines(tmp_path)) < 3:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = lines(tmp_path)
    assert 3 <= len(kept) < len(lines(folder))
    with open(tmp_path / "results.jsonl", "a", encoding="utf-8") as file:
        file.write('{"key":"torn')
    code, out, err = run(capfd, "compare", str(conf), "--run-dir", str(tmp_path), "--processes", "2", "--json")
    assert code == 0
    assert any("was cut off" in line for line in err)
    assert json.loads(out) == result
    assert lines(tmp_path)[: len(kept)] == kept
    assert sorted(lines(tmp_path)) == sorted(lines(folder))


def test_ctrl_c_while_the_processes_start_is_told_in_one_line(conf: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mpca.cli", "compare", str(conf), "--run-dir", str(tmp_path), "--processes", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True) as process:

        def importing() -> bool:
            assert process.poll() is None
            workers = [one for one in psutil.Process(process.pid).children() if "mpca.sim.compare.worker" in one.cmdline()]
            return any("numpy" in Path(f"/proc/{one.pid}/maps").read_text() for one in workers)

        wait_until(importing, "a process imports", 60.0)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said.strip()) == (130, "mpca: interrupted")


def test_a_second_start_simulates_nothing_and_prints_the_table(
    capfd: pytest.CaptureFixture[str], conf: Path, one: tuple[Path, dict[str, object]]
) -> None:
    folder, _ = one
    before = lines(folder)
    code, out, _ = run(capfd, "compare", str(conf), "--run-dir", str(folder))
    assert code == 0
    assert lines(folder) == before
    assert out.splitlines()[0].startswith("K = 2, b/C = 0.59 (ResNet-110), paper transport")
    assert "mpca (control)" in out
    assert out.count("simulated, no codec") == 3
    assert "Cost formulas in force:" in out
    assert "sync, dl4j-averaging, diloco (the paper's)" in out
    assert "gossip" not in out
    assert out.splitlines()[-1] == str(folder / "compare.html")
    assert (folder / "table.txt").read_text().startswith("K = 2, b/C = 0.59")


def test_the_page_draws_errors_over_time_and_over_steps(one: tuple[Path, dict[str, object]]) -> None:
    folder, result = one
    page = (folder / "compare.html").read_text(encoding="utf-8")
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert page.count("<polyline") == 6
    assert 'aria-label="Error over time"' in page
    assert 'aria-label="Error over steps"' in page
    data = json.loads(page.partition('id="mpca-data">')[2].partition("</script>")[0])
    assert data["rows"] == result["rows"]
    assert [curve["label"] for curve in data["curves"]] == ["single", "sync", "mpca"]
    assert len(data["curves"][0]["times"]) == len(data["curves"][0]["errors"]) >= 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[compare]\nseed = -1\n", ["compare.seed = -1", "0 or more"]),
        ("[compare]\nsedes = 3\n", ["compare.sedes", "did you mean 'seeds'"]),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, text: str, words: list[str]
) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text + '[[method]]\nname = "single"\n', encoding="utf-8")
    code, out, err = run(capfd, "compare", str(path), "--run-dir", str(tmp_path / "run"))
    assert (code, out, len(err)) == (2, "", 1)
    assert all(word in err[0] for word in words)
    assert not (tmp_path / "run").exists()


def test_a_figure_is_printed_and_drawn(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capfd, "compare", "--figure", "table1", "--out", str(tmp_path / "table1.html"))
    assert code == 0
    assert out.startswith("MPCA SGD (Langer, Hall, He, Rahayu 2018), section 3.1.2, Table 1. ")
    assert "ResNet-152" in out
    assert "As the paper: tau is five exchanges" in out
    assert "<polyline" in (tmp_path / "table1.html").read_text(encoding="utf-8")
    code, out, _ = run(capfd, "compare", "--figure", "deepspark", "--json")
    assert code == 0
    assert [one["holds"] for one in json.loads(out)["claims"]] == [False]


def test_the_command_names_every_figure() -> None:
    from mpca.cli.compare import _NAMES
    from mpca.sim.compare.figures import FIGURES

    assert set(_NAMES) == set(FIGURES)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "nothing to compare: name a CONF, or one --figure"),
        (["conf.toml", "--figure", "9"], "nothing to compare: name a CONF, or one --figure"),
        (["--figure", "9", "--quick"], "--quick is for CONF"),
        (["--figure", "9", "--digits"], "--digits is for CONF"),
        (["conf.toml", "--quick", "--digits"], "--quick and --digits are two comparisons"),
        (["conf.toml", "--out", "x.html"], "--out draws a --figure"),
        (["--figure", "12"], "'12' is not one of"),
    ],
)
def test_a_figure_or_a_file(capfd: pytest.CaptureFixture[str], args: list[str], said: str) -> None:
    code, _, err = run(capfd, "compare", *args)
    assert code == 2
    assert said in " ".join(err)


@pytest.mark.parametrize(
    ("out", "why"),
    [
        ("nowhere/x.html", "No such file or directory"),
        ("file/x.html", "Not a directory"),
        ("file", None),
        ("folder", "directory"),
        ("pipe", "= 'pipe': is no regular file; choose another one"),
        ("device", "= 'device': is no regular file; choose another one"),
        ("", "Is a directory"),
        (f"{'x' * 300}.html", "File name too long"),
        ("/proc/x.html", "No such file or directory"),  # as root too nobody can write there
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_simulated(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, why: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to(os.devnull)
    os.mkfifo(tmp_path / "pipe")

    def simulates(*_: object) -> None:
        raise RuntimeError("it simulates")

    monkeypatch.setattr("mpca.sim.compare.running.compare", simulates)
    code, _, err = run(capfd, "compare", "--figure", "10a", "--out", out)
    if why is None:
        assert "it simulates" in err[-1], "a file is replaced"
    else:
        assert code == 2
        assert "--out" in err[-1]
        assert why in err[-1]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["device", "file", "folder", "pipe"]


def test_a_table_that_cannot_be_written_is_refused_before_anything_is_simulated(
    capfd: pytest.CaptureFixture[str], conf: Path, tmp_path: Path
) -> None:
    (tmp_path / "compare.html").mkdir()
    code, _, err = run(capfd, "compare", str(conf), "--run-dir", str(tmp_path))
    assert code == 2
    assert err == [
        f"mpca: refused: --run-dir = '{tmp_path / 'compare.html'}': cannot be written: Is a directory; choose another one"
    ]
    assert [one.name for one in tmp_path.iterdir()] == ["compare.html"]


def test_a_disk_that_fills_is_told_in_one_line(
    capfd: pytest.CaptureFixture[str], conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fills(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("mpca.sim.compare.running.compare", fills)
    for words in ([str(conf)], ["--figure", "10a"]):
        code, out, err = run(capfd, "compare", *words, "--run-dir", str(tmp_path))
        said = f"mpca: {tmp_path}: No space left on device; results so far are kept: go on by the same command"
        assert (code, out, err) == (1, "", [said])
