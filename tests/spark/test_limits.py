"""Sessions that limits of the machine would break are refused before anything is started: in processes that have the limit."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.support import ROOT

#: Does what the test says, after all imports; prints how the check ends.
CHECK = """
import os, resource, sys, threading
from mpca.errors import EnvironmentRefused
from mpca.spark.run.limits import check_limits
user, kind, limit = int(sys.argv[1]), getattr(resource, sys.argv[2]), int(sys.argv[3])
if user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
resource.setrlimit(kind, (limit, limit))
try:
    check_limits(2, 4)
    print("fits")
except EnvironmentRefused as refusal:
    print(refusal)
"""
#: Prints the limits of a process that an executor started.
EXECUTORS_LIMIT = """
import resource, sys
import mpca
with mpca.session(sys.argv[1], executors=1) as spark:
    limits = lambda _: resource.getrlimit(resource.RLIMIT_NOFILE)
    print(spark.sparkContext.parallelize([0], 1).map(limits).collect())
"""
NOBODY = 65534


def check(user: int, kind: str, limit: int) -> str:
    ended = subprocess.run([sys.executable, "-c", CHECK, str(user), kind, str(limit)], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


@pytest.mark.parametrize(("limit", "fits"), [(256, False), (511, False), (512, True), (4096, True)])
def test_too_few_descriptors_are_refused_with_the_numbers(limit: int, fits: bool) -> None:
    """With 256 the driver's JVM ended while it loaded its classes; with 512 a run of two executors went to its end."""
    refusal = (
        "too few open files: limit={}, used=0, needed=512; raise it with `ulimit -Hn`, in /etc/security/limits.conf, or use"
    )
    assert check(0, "RLIMIT_NOFILE", limit).startswith("fits" if fits else refusal.format(limit))


@pytest.mark.parametrize(("executors", "fits"), [(79, True), (80, True), (81, False), (1024, False)])
def test_a_driver_of_a_cluster_needs_three_connections_an_executor(executors: int, fits: bool) -> None:
    program = CHECK.replace("check_limits(2, 4)", f"check_connections({executors})").replace(
        "import check_limits", "import check_connections"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, "0", "RLIMIT_NOFILE", "512"], cwd=ROOT, capture_output=True, text=True
    )
    refusal = f"too few open files: limit=512, used=0, needed={272 + 3 * executors}; raise it with `ulimit -Hn`, "
    assert ended.stdout.startswith("fits" if fits else refusal), ended.stderr


@pytest.mark.root
@pytest.mark.parametrize(("limit", "fits"), [(100, False), (352, False), (4000, True)])
def test_too_few_processes_of_another_user_are_refused(limit: int, fits: bool) -> None:
    """Root has no such limit, so it is a process of another user that has it; this one counts too."""
    said = check(NOBODY, "RLIMIT_NPROC", limit)
    assert said.startswith("fits" if fits else f"too few processes and threads of a user: limit={limit}, used=")
    if not fits:
        used = int(said.partition("used=")[2].partition(",")[0])
        assert 1 <= used < limit
        assert "needed=352; raise it with `ulimit -u`" in said


@pytest.mark.root
def test_root_may_start_as_many_as_it_likes() -> None:
    assert check(0, "RLIMIT_NPROC", 10) == "fits"


def test_a_run_with_too_few_descriptors_is_refused_before_it_begins(tmp_path: Path) -> None:
    """As after `ulimit -n 256`."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    command = [
        sys.executable,
        "-m",
        "mpca.cli",
        "train",
        str(ROOT / "conf" / "digits.toml"),
        "--run-dir",
        str(tmp_path / "run"),
    ]
    ended = subprocess.run(command, preexec_fn=limited, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("mpca: refused: too few open files: limit=256, used=0, needed=560;")
    assert not (tmp_path / "run").exists()


def test_jvms_raise_a_soft_limit_by_themselves(tmp_path: Path) -> None:
    """As after `ulimit -Sn 128`; what an executor starts has its limit too."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 1024))

    command = [sys.executable, "-c", EXECUTORS_LIMIT, str(tmp_path)]
    ended = subprocess.run(command, preexec_fn=limited, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert ended.stdout.strip() == "[(1024, 1024)]", ended.stderr


def test_a_session_on_a_cluster_is_refused_before_its_jvm_starts(tmp_path: Path) -> None:
    """As after `ulimit -n 512`; nobody listens at that master."""
    program = """
import sys
from mpca.errors import EnvironmentRefused
from mpca.spark.run.session import session
try:
    with session(sys.argv[1], executors=200, conf={"spark.master": "spark://127.0.0.1:1"}):
        print("begun")
except EnvironmentRefused as refusal:
    print(refusal)
"""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))

    command = [sys.executable, "-c", program, str(tmp_path)]
    ended = subprocess.run(command, preexec_fn=limited, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.stdout.startswith("too few open files: limit=512, used=0, needed=872; raise it with "), ended.stderr
    assert list(tmp_path.iterdir()) == []
