"""Which GPU an agent takes: locks between real processes, and numbers told apart by UUID."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpca.agent.gpus import DEVICES, candidates, take, uuids
from mpca.errors import EnvironmentRefused

HOLDER = """
import sys
from mpca.agent.gpus import take
mine, lock = take(sys.argv[2:], base=sys.argv[1])
print(mine, flush=True)
sys.stdin.read()
"""
#: Another user who holds whatever has the name of a lock, and tries to hold what has one already.
STRANGER = """
import fcntl, os, socket, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
base, *names = sys.argv[1:]
held = []
for name in names:
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].bind("\\0mpca-gpu-" + name)
    for folder in (base + "/mpca-gpus-0-", base + "/mpca-gpus-0-aaaaaaaa"):
        os.makedirs(folder + "/" + name)
        held.append(os.open(folder + "/" + name, os.O_RDONLY))
        fcntl.flock(held[-1], fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An nvidia-smi that knows two GPUs."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho GPU-aaaa\necho GPU-bbbb\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder like /tmp, that every user gets to."""
    folder = Path(tempfile.mkdtemp(prefix="gpus-", dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def held(script: str, *words: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", script, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_agents_take_different_gpus_and_a_dead_ones_is_free_again(tmp_path: Path) -> None:
    names = [f"{tmp_path}-a", f"{tmp_path}-b"]
    base = str(tmp_path)
    holder = held(HOLDER, base, *names)
    assert holder.stdout.readline().strip() == names[0]
    mine, lock = take(names, base=base)
    assert mine == names[1]
    with pytest.raises(EnvironmentRefused, match="other agents of this user have all GPUs of this executor"):
        take(names, patience_s=0.0, base=base)
    holder.kill()
    holder.communicate()
    again, other = take(names, base=base)
    assert again == names[0]
    lock.close()
    other.close()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_hold_a_gpu(public: Path) -> None:
    stranger = held(STRANGER, str(public), "GPU-a", "GPU-b")
    assert stranger.stdout.readline() == "held\n"
    mine, lock = take(["GPU-a", "GPU-b"], patience_s=0.0, base=str(public))
    assert mine == "GPU-a"
    (folder,) = set(public.iterdir()) - {public / "mpca-gpus-0-", public / "mpca-gpus-0-aaaaaaaa"}
    assert (folder.stat().st_mode & 0o777, folder.stat().st_uid) == (0o700, 0)
    other, its_lock = take(["GPU-a", "GPU-b"], patience_s=0.0, base=str(public))
    assert other == "GPU-b"
    with pytest.raises(EnvironmentRefused, match="of this user: gpus=GPU-a,"):
        take(["GPU-a"], patience_s=0.0, base=str(public))
    lock.close()
    its_lock.close()
    stranger.communicate()


def test_agents_that_begin_at_once_and_make_two_folders_still_exclude_each_other(tmp_path: Path) -> None:
    """The one that looks later sees both; whatever the order of their names."""
    prefix = f"mpca-gpus-{os.geteuid()}-"
    for first, second in (("b", "a"), ("a", "b")):
        base = tmp_path / first
        base.mkdir()
        (base / f"{prefix}{first}").mkdir(mode=0o700)
        mine, lock = take(["GPU-a", "GPU-b"], base=str(base))
        (base / f"{prefix}{second}").mkdir(mode=0o700)
        other, its_lock = take(["GPU-a", "GPU-b"], base=str(base))
        assert (mine, other) == ("GPU-a", "GPU-b")
        lock.close()
        its_lock.close()


def test_a_folder_that_others_can_write_into_is_not_used(tmp_path: Path) -> None:
    open_to_all = tmp_path / f"mpca-gpus-{os.geteuid()}-a"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    _, lock = take(["0"], base=str(tmp_path))
    assert list(open_to_all.iterdir()) == []
    lock.close()


def test_the_executors_gpus_come_before_the_machines(monkeypatch: pytest.MonkeyPatch, smi: None) -> None:
    monkeypatch.delenv(DEVICES, raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert candidates("cpu") == []
    assert candidates("cuda") == ["GPU-aaaa", "GPU-bbbb"]
    for named in ("cuda:0", "cuda:1", "mps", "xpu"):
        assert candidates(named) == [], "a device that is named is nobody's choice any more"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert candidates("cuda") == ["GPU-bbbb"]
    assert candidates("cpu") == [], "what is not used is not taken"
    monkeypatch.setenv(DEVICES, "GPU-cccc,0")
    assert candidates("cpu") == ["GPU-cccc", "GPU-aaaa"]


def test_numbers_stay_what_they_are_where_nobody_knows_uuids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert uuids(["0", " 1"]) == ["0", "1"]
    assert uuids(None) == []
