"""An ordinary script on real executors: what is saved of its local tensors is what an agent had when it ended."""

from __future__ import annotations

from pathlib import Path

import cloudpickle
import pytest
import safetensors.torch
import torch

from mpca.storage import Backups, LocalStore
from tests.spark import ordinary
from tests.spark.engine import Told, run_engine

cloudpickle.register_pickle_by_value(ordinary)
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(400)]

#: Several cycles long: a run whose functions return before the first cycle has no joint model, and fails.
STEPS = 1000


@pytest.fixture(scope="module")
def told(spark, work_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Every train function returns by itself after so many steps."""
    return run_engine(spark, work_dir, tmp_path_factory.mktemp("ordinary") / "run", ordinary.with_teacher, steps=STEPS)


def had(told: Told) -> list[dict[str, torch.Tensor]]:
    """Local tensors of each agent when its function returned."""
    return [one["local"] for _, one in sorted(told.ended.returns.items())]


def test_the_saved_model_has_the_counters_and_the_teacher_of_one_agent(told) -> None:
    assert told.ended.summary["status"] == "reached", told.ended.reason
    saved = safetensors.torch.load_file(Path(told.ended.run_dir) / "model.safetensors")
    assert int(saved["student.1.num_batches_tracked"]) == STEPS
    assert any(all(torch.equal(saved[name], one[name]) for name in one) for one in had(told)), "all of them of one agent"
    initial = ordinary.make()
    assert not torch.equal(saved["teacher.weight"], initial["teacher"].weight)
    assert saved["student.5.base.weight"].dtype == torch.bfloat16
    for name, tensor in told.ended.model_state.items():
        assert torch.equal(torch.from_numpy(tensor).to(saved[name].dtype), saved[name]), name


def test_the_last_backup_has_them_too(told) -> None:
    saved = safetensors.torch.load_file(Path(told.ended.run_dir) / "model.safetensors")
    backup = Backups(LocalStore(Path(told.ended.run_dir)), "backups").newest().state.layout.local
    for name, (_, _, raw) in backup.items():
        assert raw == saved[name].contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(), name
