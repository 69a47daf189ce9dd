"""Which GPU an agent takes: locks between real processes, and numbers told apart by UUID."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mpca.agent.gpus import DEVICES, candidates, take, uuids
from mpca.errors import EnvironmentRefused

HOLDER = (
    "import sys; from mpca.agent.gpus import take; mine, lock = take(sys.argv[1:]); print(mine, flush=True); sys.stdin.read()"
)


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An nvidia-smi that knows two GPUs."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho GPU-aaaa\necho GPU-bbbb\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_agents_take_different_gpus_and_a_dead_ones_is_free_again(tmp_path: Path) -> None:
    names = [f"{tmp_path}-a", f"{tmp_path}-b"]
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline().strip() == names[0]
    mine, lock = take(names)
    assert mine == names[1]
    with pytest.raises(EnvironmentRefused, match="every GPU of this executor is another agent's"):
        take(names, patience_s=0.0)
    holder.kill()
    holder.communicate()
    again, other = take(names)
    assert again == names[0]
    lock.close()
    other.close()


def test_the_executors_gpus_come_before_the_machines(monkeypatch: pytest.MonkeyPatch, smi: None) -> None:
    monkeypatch.delenv(DEVICES, raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert candidates("cpu") == []
    assert candidates("cuda") == ["GPU-aaaa", "GPU-bbbb"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert candidates("cuda") == ["GPU-bbbb"]
    assert candidates("cpu") == [], "what is not used is not taken"
    monkeypatch.setenv(DEVICES, "GPU-cccc,0")
    assert candidates("cpu") == ["GPU-cccc", "GPU-aaaa"]


def test_numbers_stay_what_they_are_where_nobody_knows_uuids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert uuids(["0", " 1"]) == ["0", "1"]
    assert uuids(None) == []
