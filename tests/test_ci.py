"""`.ci/run` with programs that stand for everything it calls: what it asks of a disk, in which order, and how it ends. And
what a session of tests leaves on the disk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NEEDED = (
    "make",
    "python3",
    "ip",
    "debootstrap",
    "dockerd",
    "docker-compose",
    "faketime",
    "krb5kdc",
    "kadmin.local",
    "kinit",
    "curl",
    "krb5-config",
    "gcc",
    "python3-config",
    "iptables",
    "chromium",
    "apt-get",
    "uv",
)
STANDS_IN = '#!/bin/bash\necho "${0##*/} $*" >>"$TOLD"\n'


class Checkout:
    """A folder with `.ci/run` in it, and a disk with so much free space."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.told = folder, folder / "told"
        (folder / ".ci").mkdir()
        shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
        for name in NEEDED:
            self.program(f"bin/{name}")
        for path in (".venv/bin/python", ".venv/bin/uv", "tools/setup-jdk"):
            self.program(path)

    def program(self, path: str, more: str = "") -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(STANDS_IN + more)
        (self.folder / path).chmod(0o700)

    def disk(self, *free: str) -> None:
        """What df says of the disks: free GiB and where they are mounted."""
        self.program("bin/df", "".join(f"echo '{line}'\n" for line in (" Avail Mounted on", *free)))

    def run(self, **more: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        inherited = {name: value for name, value in os.environ.items() if name not in ("UV_CACHE_DIR", "XDG_CACHE_HOME")}
        own = {"PATH": path, "TOLD": str(self.told), "HOME": str(self.folder), "TMPDIR": str(self.folder)}
        environment = {**inherited, **own, **more}
        return subprocess.run([".ci/run"], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60)

    def calls(self) -> list[str]:
        return self.told.read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_free_space_is_told_first_and_so_is_too_little(checkout: Checkout) -> None:
    checkout.disk(" 90G /", "  7G /tmp space", " 90G /")
    done = checkout.run()
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "free: 7 GiB in /tmp space, 90 GiB in /"
    assert done.stderr.startswith("it may take 25 GiB, and there is less in /tmp space: ")
    assert len(done.stderr.splitlines()) == 1
    assert checkout.calls()[0] == f"df -BG --output=avail,target . {checkout.folder} {checkout.folder}/.cache"


@pytest.mark.parametrize(
    ("more", "cache"),
    [
        ({"XDG_CACHE_HOME": "xdg"}, "xdg"),
        ({"XDG_CACHE_HOME": "xdg", "UV_CACHE_DIR": "uv"}, "uv"),
        ({"XDG_CACHE_HOME": ""}, "{home}/.cache"),
        ({"HOME": "/proc/none", "TMPDIR": "/nowhere"}, "/proc/none/.cache"),
    ],
)
def test_the_cache_of_uv_is_looked_at_where_it_is(checkout: Checkout, more: dict[str, str], cache: str) -> None:
    checkout.disk("66G /")
    checkout.run(**more)
    assert checkout.calls()[0].endswith(f" {cache.format(home=checkout.folder)}")


@pytest.mark.parametrize(("known", "said"), [([" 90G /"], ["free: 90 GiB in /"]), ([], [])])
def test_free_space_that_cannot_be_told_fails_nothing(checkout: Checkout, known: list[str], said: list[str]) -> None:
    checkout.disk(*known)
    checkout.program("bin/df", (checkout.folder / "bin" / "df").read_text() + "echo 'df: nowhere' >&2\nexit 1\n")
    done = checkout.run(HOME="/proc/none")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("free")] == said
    assert not any(word in done.stderr for word in ("df: nowhere", "/proc", "unbound"))
    assert "make -j2 -O lint docs junit" in checkout.calls()


def test_what_uv_has_no_use_for_is_removed_after_each_setup(checkout: Checkout) -> None:
    checkout.disk("66G /")
    done = checkout.run()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "free: 66 GiB in /"
    calls = checkout.calls()
    assert calls[1:5] == ["setup-jdk ", "make -j2 classes", "uv --version", "uv cache prune --quiet"]
    assert "make -j2 -O lint docs junit" in calls
    assert not any(one.startswith("apt-get") for one in calls)


def test_the_uv_that_the_setup_installed_is_taken_where_there_is_no_other(checkout: Checkout) -> None:
    checkout.disk("66G /")
    checkout.program("bin/uv", "exit 1\n")  # as a version manager's stub
    checkout.program(".venv/bin/uv", 'echo "of .venv" >>"$TOLD"\n')
    assert checkout.run().returncode == 0
    assert checkout.calls()[3:6] == ["uv --version", "uv cache prune --quiet", "of .venv"]


def test_a_cache_that_cannot_be_pruned_fails_nothing(checkout: Checkout) -> None:
    checkout.disk("66G /")
    checkout.program("bin/uv", '[[ $1 == --version ]] || { echo "error: no cache" >&2; exit 2; }\n')
    done = checkout.run()
    assert done.returncode == 0
    assert "error: no cache" in done.stderr
    assert "make -j2 -O lint docs junit" in checkout.calls()


#: A pytest of which the group with Hadoop's daemons fails by one test, and passes when it is tried again.
FAILS_ONCE = """
for word; do
  case $word in
    --junitxml=*) xml=${word#*=} ;;
    cache_dir=*) mkdir -p "${word#*=}" ;;
  esac
done
if [[ ${xml-} == */hadoop.xml ]]; then
  echo '<failure message=""/>' >"$xml"
  exit 1
fi
"""


def test_what_failed_beside_another_group_is_tried_twice_again_when_nothing_else_runs(checkout: Checkout) -> None:
    checkout.disk("66G /")
    checkout.program(".venv/bin/python", FAILS_ONCE)
    done = checkout.run()
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "attempt" in line] == [
        f"a {one} attempt of what failed, 1 of hadoop; the first is above, and in the table below"
        for one in ("second", "third")
    ]
    calls = [one for one in checkout.calls() if one.startswith("python -m pytest --junitxml=")]
    groups = [one.split("/")[-1].split(".xml")[0] for one in (call.split()[3] for call in calls)]
    assert sorted(groups[:6]) == ["alone", "bare", "executors", "hadoop", "others", "quiet"]
    assert groups[5:] == ["quiet", "hadoop-second", "hadoop-third"]
    assert all("--last-failed" in call and "-m not quiet and hadoop" in call for call in calls[6:])
    assert any(one.startswith("python tools/count_tests.py ") for one in checkout.calls()[-2:])


def test_folders_of_earlier_sessions_do_not_stay(tmp_path: Path) -> None:
    file = tmp_path / "test_one.py"
    file.write_text("def test_good(tmp_path):\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), str(file)]
    environment = {**os.environ, "PYTEST_DEBUG_TEMPROOT": str(tmp_path)}
    for number in range(2):
        subprocess.run(command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, check=True)
        kept = [one for one in tmp_path.glob("pytest-of-*/pytest-*") if one.is_dir() and not one.is_symlink()]
        assert [one.name for one in kept] == [f"pytest-{number}"]
