"""Agents of two Spark executors on a real GPU. It needs pyspark, Java and the JVM part, so `make setup`, beside the GPU."""

from __future__ import annotations

import os
import shutil
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import mpca
from tests.gpu import jobs
from tests.gpu.conftest import Gpu

pytestmark = pytest.mark.slow
#: What a run on executors imports, beside what `make test-gpu` needs.
PACKAGES = ("click", "hdfs", "psutil", "py4j", "pyspark", "requests", "rich", "safetensors", "tomli_w")


def missing() -> str:
    """What keeps executors from running here; nothing, when they can."""
    if lacking := [name for name in PACKAGES if find_spec(name) is None]:
        return ", ".join(lacking)
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "Java"
    from mpca.spark.jvm.jar import own_line

    return "" if own_line().jar.is_file() else "the JVM part, which `make setup` builds"


class Killer(mpca.Callback):
    """Kills agent 1 once, after some cycles."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.killed = folder, 0

    def on_cycle(self, record: dict[str, Any]) -> None:
        if record["cycle"] >= 20 and not self.killed:
            self.killed = int((self._folder / "agent-1").read_text())
            os.kill(self.killed, signal.SIGKILL)


def test_two_executors_train_on_a_gpu_and_a_killed_agent_comes_back_to_it(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not gpu.real:
        pytest.skip("agents of executors are processes of mpca's own, which know no stand-in of a GPU")
    if lacking := missing():
        pytest.skip(f"needs {lacking}")
    # CUDA takes a UUID without its last character for the same GPU, so each agent has one to lock
    names = [gpu.uuid, gpu.uuid[:-1]]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(names))
    killer = Killer(tmp_path)
    result = mpca.Distributor(
        num_agents=2,
        use_gpu=True,
        min_agents=1,
        run_dir=tmp_path / "run",
        objectives=[mpca.MaxTime("30s")],
        conf={"cluster.executor_memory": "512MiB"},
        callbacks=[killer],
    ).run(jobs.classify, str(tmp_path), "resnet20", 64)
    print({agent: {**said, "visible": names.index(said["visible"])} for agent, said in result.returns.items()}, result.summary)
    assert [result.returns[agent]["device"] for agent in (0, 1)] == ["cuda:0", "cuda:0"]
    assert sorted(result.returns[agent]["visible"] for agent in (0, 1)) == sorted(names)
    assert result.returns[1]["pid"] not in (0, killer.killed)
    assert (result.summary["agents_lost"], result.summary["agents_replaced"]) == (1, 1)
    assert result.summary["cycles"] > 40
    assert result.returns[0]["loss"] < 2.3, "noise of 64 images is learned by heart"
    assert result.model_state is not None
    assert all(tensor.isfinite().all() for tensor in result.model_state.values())
