"""`mpca pack`: what goes in, what is printed beforehand, and that it starts where the original is not to be seen."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from mpca.cli import main
from mpca.errors import ConfigError
from mpca.spark.yarn.packing import check_archive, plan

WITHOUT = ("torch", "torchvision", "scikit-learn", "pyspark", "rich", "hdfs")


def test_what_only_a_left_out_package_needs_is_left_out_too() -> None:
    all_of_it, less = plan(), plan(without=["torch", "torchvision"])
    gone = set(all_of_it.packages) - set(less.packages)
    assert {"torch", "sympy"} <= gone
    assert not gone & {"mpca", "numpy", "msgpack", "psutil"}
    inside = [name for name, _ in all_of_it.files]
    assert not [name for name in inside if "pyspark/jars" in name], "the cluster has Spark"
    assert not [name for name in inside if name.endswith(".pyc") or ".." in name]
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = f"lib/{version}/site-packages"
    first = inside[: inside.index(f"bin/{version}")]
    assert first
    assert all(name.startswith(f"{site}/mpca/") for name in first), "what is looked for comes first: a look inside is short"
    assert f"{site}/mpca/jars/mpca-spark_2.12.jar" in inside


@pytest.mark.slow
def test_every_library_that_torch_loads_is_inside() -> None:
    """CUDA's come by extras of a package that has no files of its own."""
    program = (
        "import torch, torchvision; print(*{line.split()[-1] for line in open('/proc/self/maps') if 'site-packages' in line})"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert any("libtorch" in one for one in loaded)
    inside = {path.resolve() for _, path in plan().files}
    assert not [one for one in loaded if Path(one).resolve() not in inside]


def test_a_package_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no such package in this environment: torhc; did you mean 'torch'"):
        plan(without=["torhc"])


@pytest.mark.parametrize("output", ["env.zip", "nowhere/env.tar.gz", f"{'x' * 300}.tar.gz"])
def test_an_output_that_cannot_be_is_refused(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["pack", output])
    assert ended.value.code == 2
    assert output.split("/")[0] in capfd.readouterr().err


@pytest.mark.slow
def test_an_archive_starts_in_a_folder_of_its_own(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = tmp_path / "env.tar.gz"
    with pytest.raises(SystemExit) as ended:
        main(["pack", str(output), *(word for name in WITHOUT for word in ("--without", name))])
    assert ended.value.code == 0
    foretold, done = capfd.readouterr().out.splitlines()
    assert "an archive of about" in foretold
    assert str(output) in done
    check_archive(str(output))
    with tarfile.open(output) as archive:
        archive.extractall(tmp_path / "there", filter="data")
    program = (
        "import sys, numpy, msgpack, mpca.agent.process; print(sys.prefix, mpca.__file__, numpy.__file__)\n"
        "print(*{line.split()[-1] for line in open('/proc/self/maps') if 'libpython' in line})"
    )
    said = subprocess.run(
        [str(tmp_path / "there" / "bin" / "python"), "-I", "-c", program], capture_output=True, text=True, check=True, env={}
    ).stdout.split()
    assert len(said) >= 3
    assert all(word.startswith(str(tmp_path / "there")) for word in said), "the library beside it too, if there is one"
