"""The GPU of these tests: a real one where torch finds it, else the stand-in. Needs torch, numpy, msgpack and cloudpickle."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tests.support.fake_executor import FakeExecutor

__all__ = ["Gpu"]


@dataclass(frozen=True)
class Gpu:
    """One GPU, real or not, and agents on it."""

    real: bool
    uuid: str
    env: dict[str, str]  # of an agent that is told of this GPU alone

    def agent(self, function: Callable[..., Any], *args: Any, told: bool = True, **start: Any) -> FakeExecutor:
        """An agent that is to train on it; `told` False: as where nobody can say which GPUs there are."""
        env = dict(self.env)
        if not told:
            env = {**env, "PATH": "/nowhere"}  # no nvidia-smi
            del env["MPCA_DEVICES"]
        program = "mpca.agent.main" if self.real else "tests.gpu.standin_agent"
        return FakeExecutor(function, *args, program=program, env=env, device="cuda", **start)


@pytest.fixture(scope="session")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Gpu:
    env = {name: value for name, value in os.environ.items() if name not in ("MPCA_DEVICES", "CUDA_VISIBLE_DEVICES")}
    if torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
        uuid = visible if visible and not visible.isdigit() else _uuid(int(visible or 0))
        return Gpu(True, uuid, {**env, "MPCA_DEVICES": uuid, **({"CUDA_VISIBLE_DEVICES": visible} if visible else {})})
    uuid = f"GPU-{tmp_path_factory.getbasetemp().name}-{os.getpid()}"
    return Gpu(False, uuid, {**env, "MPCA_DEVICES": uuid})


def _uuid(number: int) -> str:
    asked = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()[number]
