"""The example GAN on real executors: both of its models are exchanged, saved and gone on from, under their names."""

from __future__ import annotations

from pathlib import Path

import cloudpickle
import pytest
import safetensors.torch
from torch import Tensor

from examples import gan
from tests.spark.engine import Told, run_engine

cloudpickle.register_pickle_by_value(gan)
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(400)]

CYCLES = 90
NAMES = ("discriminator", "generator")


@pytest.fixture(scope="module")
def told(spark, work_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Two agents, whose learning rates fall to zero early, so that what is left is the pull towards the joint model."""
    sets = ("cluster.agents=2", f"objectives.max_cycles={CYCLES}")
    return run_engine(spark, work_dir, tmp_path_factory.mktemp("gan") / "run", gan.train, sets=sets, updates=80)


def saved(told: Told) -> dict[str, Tensor]:
    return safetensors.torch.load_file(Path(told.ended.run_dir) / "model.safetensors")


def norms(state: dict[str, Tensor]) -> dict[str, float]:
    """Of each model's parameters, buffers left out."""
    parameters = {name: one for name, one in state.items() if name.endswith((".weight", ".bias"))}
    return {
        model: sum(float(one.double().square().sum()) for name, one in parameters.items() if name.startswith(f"{model}."))
        ** 0.5
        for model in NAMES
    }


def test_both_models_agree_between_agents_and_with_what_is_saved(told) -> None:
    assert told.ended.summary["status"] == "max_cycles", told.ended.reason
    assert min(told.ended.summary["steps"]) > 2 * 80, "long after the last change by a gradient"
    one, other = told.ended.returns[0], told.ended.returns[1]
    assert sorted(one) == list(NAMES)
    for name, norm in norms(saved(told)).items():
        assert one[name] == pytest.approx(other[name], rel=1e-3), name
        assert one[name] == pytest.approx(norm, rel=1e-3), name


def test_the_file_holds_both_under_their_names(told) -> None:
    layers = {"discriminator": ("first", "last"), "generator": ("0", "1", "3")}
    expected = {f"{model}.{layer}.{what}" for model in NAMES for layer in layers[model] for what in ("weight", "bias")}
    expected |= {f"generator.1.{what}" for what in ("running_mean", "running_var", "num_batches_tracked")}
    assert set(saved(told)) == set(told.ended.model_state) == expected


def test_a_resumed_run_begins_with_both(told, spark, work_dir: Path) -> None:
    sets = ("cluster.agents=2", f"objectives.max_cycles={CYCLES + 3}")
    before = norms(saved(told))
    run_dir = Path(told.ended.run_dir)
    again = run_engine(spark, work_dir, run_dir, gan.train, sets=sets, resume="auto", rate=0.0)
    assert again.ended.summary["status"] == "max_cycles", again.ended.reason
    for agent in (0, 1):
        assert again.ended.returns[agent] == pytest.approx(before, rel=1e-5)
