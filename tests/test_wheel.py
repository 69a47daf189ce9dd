"""A wheel in an environment of its own, outside the checkout, trains from another directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([*_uv(), "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)], check=True, timeout=280)
    (path,) = folder.glob("*.whl")
    return path


def _uv() -> list[str]:
    beside = Path(sys.executable).with_name("uv")
    if beside.exists():
        return [str(beside)]
    if shutil.which("uv") is None:
        pytest.skip("uv is neither in .venv nor on the path")
    return ["uv"]


@pytest.mark.slow
def test_the_wheel_holds_the_jar_the_page_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "mpca/jars/mpca-spark_2.12.jar" in names
    assert "mpca/report/page.css" in names
    assert not [name for name in names if name.startswith(("tests/", "jvm/", "conf/"))]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_wheel_trains_from_another_directory(wheel: Path, tmp_path: Path) -> None:
    venv, elsewhere = tmp_path / "venv", tmp_path / "elsewhere"
    elsewhere.mkdir()
    # without what this environment has on its path; packages come out of uv's cache
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    for command in (
        [*_uv(), "venv", "--quiet", "--python", sys.executable, str(venv)],
        [*_uv(), "pip", "install", "--quiet", "--python", str(venv / "bin" / "python"), str(wheel)],
    ):
        subprocess.run(command, check=True, timeout=400, env=environment)
    shutil.copy(ROOT / "conf" / "digits.toml", elsewhere / "mine.toml")
    sets = ["--set", "cluster.agents=2", "--set", "objectives.max_cycles=12", "--set", "objectives.target_error=0"]
    done = subprocess.run(
        [str(venv / "bin" / "mpca"), "train", "mine.toml", "--json", *sets],
        cwd=elsewhere,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    shutil.rmtree(venv)  # gigabytes
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["status"] == "max_cycles"
    assert (elsewhere / summary["run_dir"] / "report.html").is_file()
