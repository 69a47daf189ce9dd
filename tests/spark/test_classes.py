"""The archive of Java classes: whose it is, that Java takes it, and that nothing depends on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mpca.environment import child_environment, environment
from mpca.spark.jvm.classes import archive, archive_options, class_path

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def other_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a Java that does not start."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\necho this Java is broken >&2\nexit 7\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.99"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path


def test_each_java_has_its_own_and_starts_without_one(other_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive()
    (other_java / "release").write_text('JAVA_VERSION="17.0.100"\n')
    after = archive()
    assert before is not None
    assert after is not None
    assert before != after
    assert archive_options() == ""
    (other_java / "release").unlink()
    assert archive() is None, "what it is cannot be known"
    monkeypatch.setenv("JAVA_HOME", str(other_java / "none"))
    assert archive() is None


def test_java_loads_sparks_classes_from_it() -> None:
    options = archive_options().split()
    if not options:
        pytest.skip("`make test` makes the archive, and nobody has made one for this Java yet")
    home = environment("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    words = [java, "-Xshare:on", *options[:1], "-Xlog:class+load", "-cp", f"{class_path()}:/tmp"]
    said = subprocess.run([*words, "org.apache.spark.SparkContext"], capture_output=True, text=True, check=False).stdout
    shared = [line for line in said.splitlines() if "org.apache.spark.SparkContext " in line]
    assert len(shared) == 1, said[-2000:]
    assert "shared objects file" in shared[0]


def test_a_java_that_fails_costs_a_line(other_java: Path) -> None:
    made = archive()
    words = [sys.executable, "tools/class_archive.py"]
    done = subprocess.run(words, cwd=ROOT, env=child_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "JVMs start without it" in done.stdout
    assert made is not None
    assert not list(made.parent.glob(f"*{made.name}*"))
