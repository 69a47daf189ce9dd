"""Agents beside a fake GPU resource: each gets a device of its own, and the exchange goes on without one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import mpca
from mpca.spark.session import session

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def train() -> str:
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mpca.attach(model, optimizer)
    while not mpca.stopping():
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    return os.environ["CUDA_VISIBLE_DEVICES"]


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
    (tmp_path / "session").mkdir()
    with session(tmp_path / "session", executors=2, agents_per_executor=2, executor_memory=512 << 20, conf=gpus) as spark:
        result = mpca.Distributor(
            num_agents=4,
            objectives=[mpca.MaxCycles(6)],
            conf={"cluster.agents_per_executor": 2},
            run_dir=tmp_path / "run",
            spark=spark,
        ).run(train)
    assert result.summary["cycles"] >= 6, "tasks of the exchange ask for no GPU"
    assert sorted(result.returns.values()) == names
