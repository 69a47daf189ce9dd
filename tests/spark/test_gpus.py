"""Agents beside a fake GPU resource: each gets a device of its own, and the exchange goes on without one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


def test_agents_of_two_executors_that_are_told_the_same_gpus_take_different_ones(tmp_path: Path) -> None:
    """As on a host where YARN does not isolate them: both workers' script finds all four."""
    names = [f"GPU-{tmp_path.name}-{number}" for number in range(4)]
    script = tmp_path / "gpus.sh"
    script.write_text('#!/bin/sh\necho \'{"name": "gpu", "addresses": ["' + '", "'.join(names) + "\"]}'\n")
    script.chmod(0o755)
    gpus = {
        "spark.worker.resource.gpu.amount": "4",
        "spark.worker.resource.gpu.discoveryScript": str(script),
        "spark.executor.resource.gpu.amount": "4",
    }
    command = [sys.executable, "-m", "tests.spark.beside_gpus", str(tmp_path), json.dumps(gpus)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["cycles"] >= 6, "tasks of the exchange ask for no GPU"
    assert told["devices"] == names
