"""A wheel in an environment of its own, outside the checkout, trains from another directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `uv build` makes it: by way of the sdist."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([*uv(), "build", "--quiet", "--out-dir", str(folder), str(ROOT)], check=True, timeout=280)
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


def uv() -> list[str]:
    beside = Path(sys.executable).with_name("uv")
    if beside.exists():
        return [str(beside)]
    if shutil.which("uv") is None:
        pytest.skip("uv is neither in .venv nor on the path")
    return ["uv"]


@pytest.mark.slow
def test_the_wheel_holds_the_jars_the_page_the_licence_and_no_tests(wheel: Path) -> None:
    held = zipfile.ZipFile(wheel)
    names = held.namelist()
    assert {"mpca/jars/mpca-spark_2.12.jar", "mpca/jars/mpca-spark_2.13.jar"} <= set(names)
    assert {"mpca/report/page.css", "mpca/report/page.js", "mpca/report/uplot/LICENSE", "mpca/py.typed"} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "jvm/", "conf/"))]
    (folder,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
    assert "License-Expression: Apache-2.0" in held.read(f"{folder}/METADATA").decode().splitlines()
    assert held.read(f"{folder}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_way_to_build_gives_the_same_files(wheel: Path, repository: Path, tmp_path: Path) -> None:
    pip = [*uv(), "tool", "run", "--quiet", "pip", "wheel", "--quiet", "--no-deps", "--disable-pip-version-check"]
    for place, command in {
        "wheel": [*uv(), "build", "--quiet", "--wheel", "--out-dir", str(tmp_path / "wheel"), str(ROOT)],
        "git": [*pip, "--wheel-dir", str(tmp_path / "git"), f"mpca @ git+file://{repository}"],  # Maven builds the jars
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
    (tool,) = uv()
    done = subprocess.run(
        [
            shutil.which(tool) or tool,
            "build",
            "--wheel",
            "--python",
            sys.executable,
            "--out-dir",
            str(tmp_path),
            str(repository),
        ],
        env={**os.environ, "PATH": str(tools)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode != 0
    assert "there is no javac on the path: install a JDK 17" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.whl"))


def _environment() -> dict[str, str]:
    """Without what this environment has on its path."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}


def _install(venv: Path, what: str) -> None:
    """Packages come out of uv's cache."""
    command = [*uv(), "pip", "install", "--quiet", "--python", str(venv / "bin" / "python"), what]
    subprocess.run(command, check=True, timeout=400, env=_environment())


@pytest.fixture(scope="module")
def venv(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An environment with the wheel, and no extra."""
    venv = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([*uv(), "venv", "--quiet", "--python", sys.executable, str(venv)], check=True, env=_environment())
    _install(venv, str(wheel))
    yield venv
    shutil.rmtree(venv)  # gigabytes


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("extra", "args"),
    [
        ("digits", ["train", str(ROOT / "conf" / "digits.toml")]),
        ("images", ["ingest", "nowhere.tar", "there"]),
        ("images", ["generate", "1", "there.tar"]),
        ("images", ["bench", "data"]),
        ("pack", ["pack", "there.tar.gz"]),
    ],
)
def test_without_extras_a_command_names_the_one_that_it_misses(venv: Path, tmp_path: Path, extra: str, args: list[str]) -> None:
    command = [str(venv / "bin" / "mpca"), *args]
    done = subprocess.run(command, cwd=tmp_path, env=_environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert f"run pip install 'mpca[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


_SCRIPT = """
import mpca


def train():
    import torch

    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mpca.attach(model, optimizer)
    for x, y in mpca.shard(data, batch_size=8):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        mpca.log(loss=loss)


if __name__ == "__main__":
    assert all(getattr(mpca, name) is not None for name in mpca.__all__)
    result = mpca.Distributor(num_agents=2, objectives=[mpca.MaxCycles(6)]).run(train)
    print(result.status, *sorted(result.model_state))
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_without_extras_a_script_trains(venv: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(_SCRIPT, encoding="utf-8")
    command = [str(venv / "bin" / "python"), "script.py"]
    done = subprocess.run(command, cwd=tmp_path, env=_environment(), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "max_cycles bias weight"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_wheel_trains_the_digits_from_another_directory(wheel: Path, venv: Path, tmp_path: Path) -> None:
    elsewhere, environment = tmp_path / "elsewhere", _environment()
    elsewhere.mkdir()
    _install(venv, f"{wheel}[digits]")
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
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["status"] == "max_cycles"
    assert (elsewhere / summary["run_dir"] / "report.html").is_file()
