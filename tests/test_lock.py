"""requirements.lock: what `make setup` installs, each file by its hash; and the audit of it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^[^\s#].*(?:\n +.*)*", LOCK, re.MULTILINE)
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def locked(python: str) -> dict[str, list[str]]:
    """Package -> versions that this Python gets."""
    found: dict[str, list[str]] = {}
    for block in BLOCKS:
        one = Requirement(block.split(" \\\n")[0])
        if one.marker is None or one.marker.evaluate(where(python)):
            found.setdefault(canonicalize_name(one.name), []).append(str(one.specifier).removeprefix("=="))
    return found


def where(python: str, extra: str = "") -> dict[str, str]:
    return {
        "python_version": python,
        "python_full_version": f"{python}.1",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "extra": extra,
    }


def wanted(python: str) -> Iterator[Requirement]:
    """What pyproject.toml asks for, with the extra `dev` and all that it names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = ["dev"]
    lines = list(project["dependencies"])
    for extra in extras:
        for line in project["optional-dependencies"][extra]:
            one = Requirement(line)
            if one.name == "mpca":
                extras += sorted(one.extras - set(extras))
            else:
                lines.append(line)
    for one in map(Requirement, lines):
        if one.marker is None or one.marker.evaluate(where(python)):
            yield one


def test_each_file_has_a_hash_and_no_index_is_named() -> None:
    assert len(BLOCKS) > 150
    assert [block.splitlines()[0] for block in BLOCKS if not re.search(r"--hash=sha256:[0-9a-f]{64}", block)] == []
    others = re.sub(
        r"^[a-z0-9][a-z0-9._-]*==\S+( ; .*)? \\$|^    --hash=sha256:[0-9a-f]{64}( \\)?$|^#.*$", "", LOCK, flags=re.MULTILINE
    )
    assert others.strip() == "", "no address, no option: which index is asked is the machine's own matter"


@pytest.mark.parametrize("python", PYTHONS)
def test_each_python_has_one_version_of_each_package_and_it_is_one_that_is_allowed(python: str) -> None:
    """`make lock` was forgotten, when pyproject.toml asks for something else."""
    there = locked(python)
    assert {name: versions for name, versions in there.items() if len(versions) > 1} == {}
    wrong = [
        str(one)
        for one in wanted(python)
        if not one.specifier.contains(there.get(canonicalize_name(one.name), ["0"])[0], prereleases=True)
    ]
    assert wrong == []


class Setup:
    """tools/setup-python, with a Python and perhaps a uv that only write down what they are asked."""

    def __init__(self, folder: Path, uv: bool, fails: bool) -> None:
        self._bin, self._log, self.folder = folder / "bin", folder / "log", folder
        self._bin.mkdir()
        stub = self._stub("python", 'case "$*" in *"pip config"*) exit 1;; esac')
        places = f"mkdir -p {folder}/venv/bin; cp {stub} {folder}/venv/bin/python"
        self._stub("python3.11", f"case \"$*\" in *'pip config'*) exit 1;; *'-m venv'*) {places};; esac")
        installs = 'case "$*" in *require-hashes*) exit 1;; esac' if fails else ""
        made = self._stub("uv", f'{installs}\ncase "$1" in venv) {places};; esac')
        if not uv:
            (folder / "venv" / "bin").mkdir(parents=True)
            made.rename(folder / "venv" / "bin" / "uv")

    def _stub(self, name: str, body: str) -> Path:
        path = self._bin / name
        keep = 'for one in "$@"; do case "$one" in */uv.txt) cp "$one" "$0.txt" ;; esac; done'
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>{self._log}\n{keep}\n{body}\n')
        path.chmod(0o755)
        return path

    def run(self, **others: str) -> subprocess.CompletedProcess[str]:
        kept = {key: value for key, value in os.environ.items() if key not in ("PYTHON", "LOCK") and not key.startswith("UV_")}
        return subprocess.run(
            [ROOT / "tools" / "setup-python", str(self.folder / "venv")],
            cwd=ROOT,
            env={**kept, "PATH": f"{self._bin}:/usr/bin:/bin", **others},
            capture_output=True,
            text=True,
        )

    def installs(self) -> list[str]:
        return [line for line in self._log.read_text().splitlines() if " install " in line]


def test_setup_installs_by_hash_and_builds_mpca_from_what_is_locked(tmp_path: Path) -> None:
    setup = Setup(tmp_path, uv=True, fails=False)
    done = setup.run()
    assert done.returncode == 0, done.stderr
    python = tmp_path / "venv" / "bin" / "python"
    assert setup.installs() == [
        f"uv pip install --quiet --python {python} --require-hashes --build-constraints requirements.lock -r requirements.lock",
        f"uv pip install --quiet --python {python} --no-deps --no-build-isolation -e .",
    ]


def test_without_uv_that_is_installed_by_its_hash_first(tmp_path: Path) -> None:
    setup = Setup(tmp_path, uv=False, fails=False)
    done = setup.run()
    assert done.returncode == 0, done.stderr
    assert setup.installs()[0].startswith("python -m pip install --quiet --disable-pip-version-check -r ")
    asked = (tmp_path / "venv" / "bin" / "python.txt").read_text()
    assert re.fullmatch(r"uv==\S+ ; .* \\\n( +--hash=sha256:[0-9a-f]{64}( \\)?\n)+", asked), (
        "pip checks hashes where there are some"
    )


def test_what_no_index_has_is_refused_with_the_way_without_hashes(tmp_path: Path) -> None:
    setup = Setup(tmp_path, uv=True, fails=True)
    done = setup.run()
    assert done.returncode == 2
    assert "the packages of requirements.lock could not be installed, for the reason above" in done.stderr
    assert "`make setup LOCK=`" in done.stderr
    assert len(setup.installs()) == 1, "and nothing is installed in another way"
    assert setup.run(LOCK="").returncode == 0
    assert setup.installs()[-1].endswith(" -e .[dev]")


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "tools" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def known(name: str, *bad: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "version": "1.0", "vulns": list(bad)}


@pytest.mark.parametrize(
    ("dependencies", "code", "last"),
    [
        ([known("a"), known("b")], 0, "2 packages checked, 0 unknown to PyPI, 0 vulnerabilities known"),
        (
            [known("a", {"id": "CVE-1", "fix_versions": ["1.1"]})],
            1,
            "1 packages checked, 0 unknown to PyPI, 1 vulnerabilities known",
        ),
        (
            [known("a"), {"name": "b", "skip_reason": "not on PyPI"}],
            0,
            "1 packages checked, 1 unknown to PyPI, 0 vulnerabilities known",
        ),
        ([{"name": "b", "skip_reason": "not on PyPI"}], 2, "audit: nothing was checked: "),
        ([], 2, "audit: nothing was checked: "),
    ],
)
def test_an_audit_that_checked_nothing_is_no_clean_one(
    audit: ModuleType, dependencies: list[Any], code: int, last: str
) -> None:
    lines, ended = audit.verdict({"dependencies": dependencies})
    assert ended == code
    assert lines[-1].startswith(last)
    assert len(lines) == 1 + (code == 1)


def test_an_audit_that_could_not_ask_says_so_in_a_sentence(tmp_path: Path) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\necho 'Traceback' >&2; echo 'ConnectionError: no route' >&2; exit 1\n")
    uv.chmod(0o755)
    done = subprocess.run([sys.executable, ROOT / "tools" / "audit.py", uv, "x.lock"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"audit: nothing was checked: pip-audit ended with 1: ConnectionError: no route; .*\n", done.stderr)
