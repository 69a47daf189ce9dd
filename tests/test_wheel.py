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
    """As `uv build` makes it: by way of the sdist."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([*_uv(), "build", "--quiet", "--out-dir", str(folder), str(ROOT)], check=True, timeout=280)
    assert len(list(folder.glob("*.tar.gz"))) == 1
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of what is tracked here, as it is now: nothing that was built."""
    folder = tmp_path_factory.mktemp("repository")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "all"]):
        subprocess.run([*git, *command], cwd=folder, check=True)
    return folder


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


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_way_to_build_gives_the_same_files(wheel: Path, repository: Path, tmp_path: Path) -> None:
    pip = [*_uv(), "tool", "run", "--quiet", "pip", "wheel", "--quiet", "--no-deps", "--disable-pip-version-check"]
    for place, command in {
        "wheel": [*_uv(), "build", "--quiet", "--wheel", "--out-dir", str(tmp_path / "wheel"), str(ROOT)],
        "git": [*pip, "--wheel-dir", str(tmp_path / "git"), f"mpca @ git+file://{repository}"],  # Maven builds the jar
    }.items():
        subprocess.run(command, check=True, timeout=500, cwd=tmp_path)
        (built,) = (tmp_path / place).glob("*.whl")
        assert sorted(zipfile.ZipFile(built).namelist()) == sorted(zipfile.ZipFile(wheel).namelist()), place


@pytest.mark.slow
def test_without_a_jdk_a_fresh_clone_is_refused_in_one_sentence(repository: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "git", "env"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    (uv,) = _uv()
    done = subprocess.run(
        [shutil.which(uv) or uv, "build", "--wheel", "--python", sys.executable, "--out-dir", str(tmp_path), str(repository)],
        env={**os.environ, "PATH": str(tools)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode != 0
    assert "there is no javac on the path: install a JDK 11 or 17" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.whl"))


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
