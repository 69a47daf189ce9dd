"""The newest Python that the metadata allow, as Debian 13 has it: set-up, quick tests of some packages, and a short run.

Everything else runs with the Python of the machine. Debian 13 has no JDK that Spark 3.5 takes, so this machine's own is
copied in, and with it the jars, which are the same whichever Python there is.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bare.root import NEEDED, BareRoot, bare_root

ROOT = Path(__file__).resolve().parents[2]
JARS = "mpca/jars"
#: What touches the interpreter most and takes seconds: dataclasses and types on the wire, files, JSON, memory, imports. Pickled
#: functions, processes and torch are the run's.
PACKAGES = ("algorithm", "methods", "wire", "records", "storage", "shm", "driver", "test_exports.py", "test_surface.py")
QUICK = "not spark and not hadoop and not docker and not slow and not root and not browser"
SHORT = "--set cluster.agents=2 --set objectives.target_error=0.3"

pytestmark = [*NEEDED, pytest.mark.timeout(1800)]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[BareRoot]:
    with bare_root(tmp_path / "root", "trixie") as made:
        yield made


def test_python_3_13_sets_up_passes_quick_tests_and_trains(root: BareRoot) -> None:
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(root.inside("/root/mpca"))], check=True)
    shutil.copytree(ROOT / JARS, root.inside(f"/root/mpca/{JARS}"), copy_function=shutil.copy)
    _copy_jdk(root)
    said = root.run("make setup", cwd="/root/mpca")
    assert re.search(r"installing mpca into \.venv, with Python 3\.13\.\d", said)
    assert "building mpca/jars" not in said
    tests = " ".join(f"tests/{name}" for name in PACKAGES)
    said = root.run(f".venv/bin/python -m pytest -q -m '{QUICK}' {tests}", cwd="/root/mpca")
    assert int(re.search(r"(\d+) passed", said)[1]) > 300
    root.run(f"make train ARGS='{SHORT}'", cwd="/root/mpca")
    (run_dir,) = root.inside("/root/mpca/runs").iterdir()
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "reached", summary
    assert summary["versions"]["python"].startswith("3.13.")


def _copy_jdk(root: BareRoot) -> None:
    """Of this machine, which `make setup` has found good."""
    home = Path(shutil.which("javac") or "javac").resolve().parents[1]
    shutil.copytree(home, root.inside(str(home)), ignore_dangling_symlinks=True)  # with what links lead to, as its settings
    for name in ("java", "javac"):
        root.inside(f"/usr/bin/{name}").symlink_to(home / "bin" / name)
