"""The examples with Lightning, transformers, peft and accelerate, and a language model, on real executors: each to its goal."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest
import safetensors.torch
import torch

from examples import lightning_fit, lm, lora, transformers_trainer
from mpca.driver.objectives import Evaluate
from mpca.records import MetricsRecord
from tests.spark.engine import Told, run_engine

for example in (lightning_fit, lm, lora, transformers_trainer):
    cloudpickle.register_pickle_by_value(example)
pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning"),  # of torch, about other packages
]


@pytest.fixture
def run(spark, work_dir: Path, tmp_path: Path) -> Any:
    """Two agents run an example until a number of its evaluation meets a goal."""

    def made(example: ModuleType, goal: str, *args: Any) -> Told:
        told = run_engine(
            spark,
            work_dir,
            tmp_path / "run",
            example.train,
            *args,
            sets=("cluster.agents=2", f"objectives.targets={goal}"),
            evaluate=Evaluate(partial(example.evaluate, *args) if not args else partial(example.evaluate, base=args[0]), "1s"),
        )
        assert told.ended.summary["status"] == "reached", told.ended.reason
        assert sorted(told.ended.returns) == [0, 1], "every train function returned by itself"
        assert sorted(told.ended.summary["cut_off"]) == []
        return told

    return made


def logged(told: Told) -> set[str]:
    return {name for one in told.records if isinstance(one, MetricsRecord) for name in one.metrics}


@pytest.mark.parametrize(
    ("example", "names"),
    [(lightning_fit, {"loss"}), (transformers_trainer, {"loss", "grad_norm", "learning_rate"})],
    ids=["lightning", "transformers"],
)
def test_a_trainer_stops_at_the_goal_of_the_run(run: Any, example: ModuleType, names: set[str]) -> None:
    told = run(example, "accuracy >= 0.9")
    summary = told.ended.summary
    assert [told.ended.returns[agent] for agent in (0, 1)] == summary["steps"], "the trainer's own counts"
    assert summary["samples"] > 0
    assert logged(told) == names


def test_adapters_alone_are_exchanged_and_the_base_is_saved_as_it_was(run: Any) -> None:
    base = lora.pretrained()
    told = run(lora, "accuracy >= 0.8", base)
    trained, whole = told.ended.returns[0]
    assert told.ended.summary["model_bytes"] == 4 * trained < whole
    saved = safetensors.torch.load_file(Path(told.ended.run_dir) / "model.safetensors")
    adapters = [name for name in saved if ".lora_" in name]
    assert sum(saved[name].numel() for name in adapters) == trained
    own = {name: name.removeprefix("base_model.model.").replace(".base_layer.", ".") for name in saved if name not in adapters}
    assert set(own.values()) == set(base)
    assert all(torch.equal(saved[name], base[of]) for name, of in own.items())


def test_a_language_model_comes_near_the_least_perplexity(run: Any) -> None:
    told = run(lm, f"perplexity <= {1.05 * lm.LEAST_PERPLEXITY}")
    assert logged(told) == {"loss"}
