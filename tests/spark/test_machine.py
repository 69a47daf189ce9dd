"""The memory of a machine that plays every node: what a run lacks is said in one line, and a run that has it hears nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mpca.api.job import resolve
from mpca.spark.run.machine import machine_warning
from tests.bench.support import needs_namespaces

GIB = 1 << 30
ROOT = Path(__file__).resolve().parents[2]


def bounds(gib: float, shards: int) -> list[int]:
    elements = int(gib * GIB) // 4
    return [elements * n // shards for n in range(shards + 1)]


def warning(
    gib: float, free: float, *, shards: int = 3, answers: int = 0, kept: float = 0, method: str = "mpca", **cluster: int
) -> str:
    config = resolve(None, [f"method.name={method}", *(f"cluster.{key}={value}" for key, value in cluster.items())])
    return machine_warning(config, bounds(gib, shards), answers, int(kept * GIB), int(free * GIB))


def test_a_small_model_is_no_matter() -> None:
    assert warning(0.001, free=0.1, agents=4) == ""


def test_what_is_said() -> None:
    line = warning(2.25, free=18, shards=24, agents=1)
    assert line.startswith("warning: this machine has 18.0 GiB of memory left, and a model of 2.2 GiB takes about ")
    assert "cluster.agents = 1 on it" in line


# of 1 GiB in three shards: 7/3 in 0.6 of an executor's heap; two for an agent's step; for the driver's JVM 4/3 and the model in
# 0.6 of its heap, and 4 1/3 for its Python. Each agent but the first still makes its slots, 1 1/3.
ONE = 7 / 3 / 0.6 + 2 + 7 / 3 / 0.6 + 13 / 3
OTHER = 7 / 3 / 0.6 + 2 + 4 / 3


@pytest.mark.parametrize(
    ("needed", "how"),
    [
        (ONE, {"agents": 1}),
        (ONE + 3 * OTHER, {"agents": 4}),
        (ONE + 2 + 4 / 3 + 4 / 3 / 0.6, {"agents": 2, "agents_per_executor": 2}),
        (ONE + 2 / 0.6 + (7 / 3 + 4) / 0.8 - 7 / 3 / 0.6, {"agents": 1, "kept": 4.0}),
        (ONE + (8 - 13 / 3) + 2 / 3 / 0.6, {"agents": 1, "method": "async-ps", "answers": 2}),
    ],
)
def test_where_it_begins(needed: float, how: dict) -> None:
    """What is counted, by the two amounts of memory between which the warning goes away."""
    assert warning(1, free=needed - 0.01, **how)
    assert warning(1, free=needed + 0.01, **how) == ""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.root
def test_a_run_says_it_and_goes_on(tmp_path: Path) -> None:
    """On a machine whose kernel says that little memory is left: enough for the agent's slots, and too little for the model."""
    needs_namespaces()
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(re.sub(r"MemAvailable: +\d+", "MemAvailable: 2000", Path("/proc/meminfo").read_text()))
    mpca = f"{sys.executable} -m mpca.cli train {ROOT / 'conf' / 'digits.toml'} --run-dir {tmp_path / 'run'}"
    sets = "--set cluster.agents=1 --set cluster.min_agents=1 --set objectives.max_cycles=3"
    shell = f"mount --bind {meminfo} /proc/meminfo && exec {mpca} {sets}"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", shell], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("warning: this machine has 2.0 MiB of memory left, and a model of 229.7 KiB takes about ") == 1
    assert "cycles, " in done.stdout
