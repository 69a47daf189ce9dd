"""Help and refusals answer at once: none of them imports what is slow to import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from mpca.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
DIGITS = "conf/digits.toml"
SLOW = ("torch", "pyspark", "py4j", "psutil")
NUMPY = ("numpy",)  # a tenth of torch; methods and data sets need it
#: Runs commands one after the other, and says of each how it ended and what of the slow modules is imported by now.
PROGRAM = """
import contextlib, io, json, sys
from mpca.cli import main
slow, commands = json.loads(sys.argv[1])
ends = []
for args in commands:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            main(args)
        except SystemExit as ended:
            code = ended.code
    ends.append((code, said.getvalue(), sorted(set(slow) & set(sys.modules))))
print(json.dumps(ends))
"""


def check(slow: tuple[str, ...], code: int, said: dict[tuple[str, ...], str], **more: str) -> None:
    """In a fresh process every command of `said` ends with `code`, says its words, and imports nothing of `slow`."""
    env = {key: value for key, value in os.environ.items() if key not in ("HADOOP_CONF_DIR", "SPARK_HOME")}
    command = [sys.executable, "-c", PROGRAM, json.dumps([slow, list(said)])]
    ended = subprocess.run(command, env=env | more, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    for (args, words), (its, told, imported) in zip(said.items(), json.loads(ended.stdout), strict=True):
        assert its == code, (args, told)
        assert words in told, args
        assert not imported, args


def test_help_imports_nothing_slow() -> None:
    check(SLOW + NUMPY, 0, {("--help",): "simulate"} | {(name, "--help"): f"mpca {name}" for name in cli.commands})


def test_a_refusal_of_a_key_or_a_file_imports_nothing_slow() -> None:
    told = {
        ("train", DIGITS, "--set", "metod.name=sync"): "did you mean 'method'?",
        ("train", DIGITS, "--set", "cluster.agnets=3"): "did you mean 'agents'?",
        ("train", DIGITS, "--set", "cluster.executor_memory=5"): "write a number with its unit",
        ("train", DIGITS, "--set", "method.name"): "must be section.key=value",
        ("train", "nowhere.toml"): "No such file",
        ("submit", DIGITS, "--set", "metod.name=sync"): "did you mean 'method'?",
        ("submit", "nowhere.toml"): "No such file",
        ("tune", DIGITS, "--set", "metod.name=sync"): "did you mean 'method'?",
        ("tune", "nowhere.toml"): "No such file",
        ("driver", DIGITS): "spark-submit must start this command",
        ("doctor",): "HADOOP_CONF_DIR is not set",
        ("pack", "environment.zip"): "name it *.tar.gz",
    }
    check(SLOW + NUMPY, 2, told)


def test_a_refusal_by_a_method_or_a_data_set_imports_no_more_than_numpy(tmp_path: Path) -> None:
    word = tmp_path / "compare.toml"
    word.write_text("[compare]\noptimizer = 'adan'\n[[method]]\nlabel = 'sync'\nname = 'sync'\n", encoding="utf-8")
    told = {
        ("train", DIGITS, "--set", "method.shards=many"): "must be a whole number",
        ("train", DIGITS, "--set", "method.name=sinc"): "did you mean 'sync'?",
        ("train", DIGITS, "--set", "model.name=digits_convnot"): "did you mean 'digits_convnet'?",
        ("train", DIGITS, "--set", "data.name=digit"): "did you mean 'digits'?",
        ("train", DIGITS, "--set", "optimizer.name=adan"): "did you mean 'adam'?",
        ("train", DIGITS, "--set", "cluster.agents=2000"): "fewer samples than agents",
        ("submit", DIGITS): "HADOOP_CONF_DIR is not set",
        ("tune", DIGITS, "--set", "method.name=sync"): "looks for alpha",
        ("compare", "nowhere.toml"): "No such file",
        ("compare", DIGITS): "unknown section [run]",
        ("compare", str(word)): "compare.optimizer = 'adan'",
        ("simulate", "--plan", "--step", "0s", "--size", "1MiB"): "must be above 0",
        ("ingest", "/nowhere", "target"): "no such source",
        ("backups", "verify", "/nowhere"): "no backups here",
    }
    check(SLOW, 2, told)


def test_an_archive_that_is_missing_is_refused_before_anything_slow_is_imported(tmp_path: Path) -> None:
    for name in ("core-site.xml", "yarn-site.xml"):
        (tmp_path / name).write_text("<configuration/>", encoding="utf-8")
    told = {("submit", DIGITS, "--archives", "nowhere.tar.gz"): "no such archive"}
    check(SLOW, 2, told, HADOOP_CONF_DIR=str(tmp_path))
