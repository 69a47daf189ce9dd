"""Agents whose environment is another than the driver's, for real: their interpreter finds another release first."""

from __future__ import annotations

import pkgutil
import re
import sys
from pathlib import Path

import pytest

from tests.spark.jobs import quadratic

pytestmark = pytest.mark.spark


def other_release(folder: Path, package: Path, file: str, text: str) -> None:
    """A package as it is installed, but for one file that says another version."""
    (folder / package.name).mkdir(parents=True)
    for path in package.iterdir():
        if path.name not in (file, "__pycache__"):
            (folder / package.name / path.name).symlink_to(path)
    (folder / package.name / file).write_text(text)


def python_that_finds(folder: Path) -> Path:
    """An interpreter, as `cluster.python` names one, for which what lies in `folder` comes first."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("package", "file"), [("torch", "version.py"), ("mpca", "__init__.py")])
def test_another_release_in_the_agents_is_refused_with_both_versions(engine, tmp_path: Path, package: str, file: str) -> None:
    installed = Path(pkgutil.get_loader(package).get_filename()).parent
    text = (installed / file).read_text()
    (ours,) = re.findall(r"^__version__ = ['\"](.+)['\"]$", text, re.MULTILINE)
    theirs = "0.0.7"
    other_release(tmp_path, installed, file, text.replace(ours, theirs))
    told = engine(quadratic, tape=False, sets=("cluster.agents=1", f"cluster.python={python_that_finds(tmp_path)}"))
    assert (told.ended.exit_code, told.ended.summary["status"]) == (1, "failed")
    assert told.cycles == []
    expected = (
        rf"{package} differs: the driver has {re.escape(ours.partition('+')[0])}\S*, agent 0 on host \S+ \(executor \d+\) "
        rf"has {re.escape(theirs)}; use one environment everywhere, or set cluster\.python"
    )
    assert re.fullmatch(expected, told.ended.reason)
