"""A newcomer's first minutes: the README's commands, word for word, on a Debian that has hardly more than git and make."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bare.root import NEEDED, PACKAGES, BareRoot, bare_root

ROOT = Path(__file__).resolve().parents[2]
#: The README marks its blocks for this test by a comment in front of them.
MARKED = re.compile(r"<!-- tests/bare runs this -->\s*```sh\n(.*?)```", re.DOTALL)

pytestmark = [*NEEDED, pytest.mark.timeout(2400)]


def commands() -> list[str]:
    """The README's commands in their order, one a line; comments are for the reader."""
    blocks = MARKED.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def test_the_readme_has_commands_for_a_newcomer() -> None:
    assert commands()[:2] == ["make setup", "make train"]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[BareRoot]:
    with bare_root(tmp_path / "root") as made:
        yield made


def test_the_readmes_commands_work_on_a_bare_debian(root: BareRoot) -> None:
    installed = root.run("dpkg-query -W -f '${Package}\\n'", quiet=True).split()
    assert set(PACKAGES) <= set(installed)
    assert not [name for name in installed if re.match(r"openjdk|python3-(venv|pip|numpy)|curl|wget|maven", name)]

    # what is committed, and nothing that only this checkout has
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(root.inside("/root/mpca"))], check=True)
    said = {command: root.run(command, cwd="/root/mpca") for command in commands()}

    assert "installing openjdk-17-jdk-headless with apt" in said["make setup"]
    again = root.run("make setup", cwd="/root/mpca")
    assert again.strip().splitlines() == ["ready: make train, or .venv/bin/mpca --help"], "a second setup does nothing"

    (run_dir,) = root.inside("/root/mpca/runs").iterdir()
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "reached", summary
    assert summary["final_error"] < 0.05
    assert "report.html" in said["make train"], "it says where the report is"
    assert {path.name for path in run_dir.iterdir()} >= {
        "config.toml",
        "model.safetensors",
        "records.jsonl",
        "report.html",
        "summary.json",
    }
    assert subprocess.run(["git", "status", "--short"], cwd=root.inside("/root/mpca"), capture_output=True).stdout == b""
