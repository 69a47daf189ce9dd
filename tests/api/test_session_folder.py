"""The folder of a local session, where a killed driver has left one: its JVMs end by themselves, and write until they have."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpca.errors import EnvironmentRefused
from mpca.spark.run import session
from mpca.spark.run.session import _MARK, _make_home
from tests.support.fake_executor import wait_until

pytestmark = pytest.mark.long

#: Until `seconds` have passed, it makes folders as Spark's block manager does when its own are gone.
WRITES = """
import os, sys, time
home, seconds = sys.argv[1], float(sys.argv[2])
end = time.monotonic() + seconds
while time.monotonic() < end:
    for n in range(20):
        os.makedirs(f"{home}/local/blockmgr/{n:02x}", exist_ok=True)
        open(f"{home}/local/blockmgr/{n:02x}/{time.monotonic_ns()}", "w").close()
"""

Jvm = Callable[[float], subprocess.Popen[bytes]]


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """What a killed driver left."""
    home = tmp_path / "run" / "spark"
    (home / "work" / "app-1").mkdir(parents=True)
    (home / "driver.log").write_text("the last line\n")
    (home / "jars").symlink_to(tmp_path)
    (home / _MARK).touch()
    return home


@pytest.fixture
def jvm(tmp_path: Path, left: Path) -> Iterator[Jvm]:
    """Starts what works in the folder for some seconds, and looks like a JVM from outside."""
    java = tmp_path / "java"
    java.symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    started: list[subprocess.Popen[bytes]] = []

    def start(seconds: float) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([java, "-c", WRITES, str(left), str(seconds)]))
        wait_until((left / "local" / "blockmgr" / "13").exists, "its first files")
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()


def test_it_waits_for_a_jvm_that_is_ending(left: Path, jvm: Jvm) -> None:
    process = jvm(1.5)
    _make_home(left, "warn")
    assert process.poll() is None or process.returncode == 0
    process.wait()
    assert (left / _MARK).is_file()
    assert list((left / "local").iterdir()) == [], "nothing of the session before"
    assert not (left / "work").exists()
    assert not (left / "driver.log").exists()


def test_it_is_refused_beside_a_jvm_that_does_not_end(left: Path, jvm: Jvm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LEFT_JVM_END_S", 0.3)
    process = jvm(60)
    with pytest.raises(EnvironmentRefused, match=rf"a JVM of an earlier session works in {left}: pid {process.pid}; end it"):
        _make_home(left, "warn")
    assert (left / "driver.log").read_text() == "the last line\n"
    assert process.poll() is None


def test_what_cannot_be_removed_stays_mpcas_own(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second try may remove it."""
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", lambda *_, **__: None)
        with pytest.raises(EnvironmentRefused, match=f"what an earlier session left cannot be removed: {left}; "):
            _make_home(left, "warn")
    assert (left / _MARK).is_file()
    _make_home(left, "warn")
    assert not (left / "work").exists()


def test_a_folder_that_mpca_did_not_make_stays_as_it_is(left: Path) -> None:
    (left / _MARK).unlink()
    with pytest.raises(EnvironmentRefused, match=f"mpca did not make the folder that Spark needs: {left}; "):
        _make_home(left, "warn")
    assert (left / "driver.log").read_text() == "the last line\n"
