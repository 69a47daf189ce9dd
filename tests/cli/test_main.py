"""The command line without a cluster: help, refusals with their exit codes and one root-cause line, reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mpca.cli import main
from mpca.storage import Backups, LocalStore
from tests.report.synthetic import synthetic_records, write_run
from tests.storage.test_backup import state

ROOT = Path(__file__).resolve().parents[2]
DIGITS = str(ROOT / "conf" / "digits.toml")


def run(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, list[str]]:
    """Exit code, stdout, and the lines of stderr."""
    with pytest.raises(SystemExit) as ended:
        main(list(args))
    out, err = capfd.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err.strip().splitlines()


def test_help_names_every_command(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, "--help")
    assert code == 0
    assert all(name in out for name in ("train", "report", "bench"))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["train", "nowhere.toml"], ["nowhere.toml", "No such file"]),
        (["train", DIGITS, "--set", "cluster.agnets=3"], ["cluster.agnets", "did you mean 'agents'"]),
        (["train", DIGITS, "--set", "method.alpha=1.5"], ["method.alpha", "1.5", "[0, 1]"]),
        (["train", DIGITS, "--set", "model.name=digits_convnot"], ["model.name", "did you mean 'digits_convnet'"]),
        (["train", DIGITS, "--set", "cluster.agents=2000"], ["fewer samples than agents", "2000", "1437"]),
        (["train", DIGITS, "--set", "optimizer.name=adan"], ["optimizer.name", "did you mean 'adam'"]),
        (["train", DIGITS, "--set", "method.name=sync-ps"], ["optimizer.name = 'adam'", "must be sgd", "sync-ps"]),
        *(
            (
                [command, DIGITS, "--set", "method.name=mpca", "--set", f"objectives.{key}={text}"],
                [f"objectives.{key} = '{text}'", f"returns error and loss, and no {name}", "mpca.Evaluate(function)"],
            )
            for command in ("train", "tune")
            for key, text, name in (
                ("targets", "loss <= 0.1, accuracy >= 0.97", "accuracy"),
                ("keep_best", "max f1", "f1"),
                ("early_stopping", "perplexity", "perplexity"),
            )
        ),
        (["train", DIGITS, "--set", "objectives.max_time=90"], ["objectives.max_time", "90s"]),
        (["tune", DIGITS], ["method.name = 'mpca-nesterov'", "looks for alpha", 'set method.name = "mpca"']),
        (["report", "/nowhere"], ["not a run folder", "records.jsonl"]),
        (["report", "hdfs://namenode/runs/a"], ["hdfs:/namenode/runs/a", "is on HDFS", "hdfs dfs -get"]),
    ],
)
def test_a_refusal_exits_with_2_and_one_line_that_says_what_and_where(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capfd, *args)
    assert code == 2
    assert out == ""
    assert err[-1].startswith("mpca: refused: ")
    for word in words:
        assert word in err[-1]
    assert list(tmp_path.iterdir()) == [], "a refusal leaves nothing behind"


def test_a_run_folder_that_exists_is_refused_with_the_remedy(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capfd, "train", DIGITS, "--run-dir", str(tmp_path))
    assert code == 2
    assert str(tmp_path) in err[-1]
    assert "--resume auto" in err[-1]


@pytest.mark.parametrize("spark", ["nothing", "users", "of a killed driver"])
def test_a_resume_that_is_refused_leaves_the_folder_as_it_was(tmp_path: Path, spark: str) -> None:
    """A folder with copied backups, notes, and perhaps something where Spark's files would go; no Java."""
    folder = tmp_path / "moved"
    Backups(LocalStore(folder), "backups").write(replace(state(5), data={}))
    (folder / "notes.txt").write_text("mine")
    was = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    if spark != "nothing":
        (folder / "spark" / "local").mkdir(parents=True)
        (folder / "spark" / "song.ogg").write_bytes(b"la")
    if spark == "users":
        was[folder / "spark" / "song.ogg"] = b"la"
    elif spark != "nothing":
        (folder / "spark" / ".made-by-mpca").touch()
    ended = subprocess.run(
        [sys.executable, "-m", "mpca.cli", "train", DIGITS, "--resume", "auto", "--run-dir", str(folder)],
        env={**os.environ, "JAVA_HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert ended.returncode == 2, ended.stderr
    words = f"{folder}/spark; move it away" if spark == "users" else "Java 8, 11 or 17 must be on PATH"
    assert words in ended.stderr.splitlines()[-1]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == was


def test_an_unknown_option_exits_with_2(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, "train", DIGITS, "--quick")
    assert code == 2
    assert "--quick" in err[-1]


def test_with_json_stdout_is_one_object_even_for_a_refusal(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "train", DIGITS, "--json", "--set", "method.name=magic")
    assert code == 2
    assert json.loads(out)["status"] == "failed"
    assert "method.name" in json.loads(out)["reason"]
    assert err[-1].startswith("mpca: refused: ")


def test_report_draws_the_page_and_says_where_it_is(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", synthetic_records(cycles=5))
    code, out, _ = run(capfd, "report", str(run_dir))
    assert code == 0
    assert Path(out.strip()) == run_dir / "report.html"
    assert (run_dir / "report.html").is_file()


def test_a_report_of_several_runs_has_a_run_once_that_was_named_twice(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    one, two = (str(write_run(tmp_path / name, synthetic_records(cycles=5))) for name in ("one", "two"))
    code, out, _ = run(capfd, "report", one, two, one + "/", "--out", str(tmp_path / "runs.html"))
    assert (code, out.strip()) == (0, str(tmp_path / "runs.html"))
    assert "<h1>2 runs</h1>" in (tmp_path / "runs.html").read_text(encoding="utf-8")
    assert run(capfd, "report", one, one)[:2] == (0, f"{one}/report.html\n")


def test_a_report_that_cannot_be_written_is_told_in_one_line(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", synthetic_records(cycles=5))
    (run_dir / "report.html").mkdir()
    code, out, err = run(capfd, "report", str(run_dir))
    assert (code, out) == (2, "")
    assert err == [f"mpca: refused: RUN_DIR = '{run_dir}': its report cannot be drawn: Is a directory"]
    assert not list(run_dir.glob(".*")), "nothing stays behind"


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"status": "rea'])
def test_a_report_is_drawn_without_a_summary_that_is_damaged(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    run_dir = write_run(tmp_path / "run", synthetic_records(cycles=5))
    (run_dir / "summary.json").write_text(text)
    code, _, _ = run(capfd, "report", str(run_dir))
    assert code == 0
    assert (run_dir / "report.html").is_file()


def test_a_configuration_that_is_nested_too_deeply_is_refused(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)
    code, _, err = run(capfd, "train", str(tmp_path / "deep.toml"))
    assert code == 2
    assert "nested too deeply" in err[-1]


def test_an_unknown_bench_case_exits_with_2_and_names_it(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, "bench", "nothing")
    assert code == 2
    assert "nothing" in err[-1]


def test_a_folder_of_backups_that_others_write_into_is_refused(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A run goes on from the newest backup that it finds: whoever may write there chooses the model."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    shared = str(tmp_path / "shared")
    code, _, err = run(capfd, "train", DIGITS, "--run-dir", str(tmp_path / "run"), "--set", f"backup.path={shared}")
    assert code == 2
    assert f"backup.path = '{shared}': everybody (mode 0777) can write there" in err[-1]
    assert "chmod" in err[-1]
    assert not (tmp_path / "run").exists()
