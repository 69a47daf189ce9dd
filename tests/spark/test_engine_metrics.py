"""Numbers on real executors: what agents log and evaluations return is recorded, drawn, a goal, and told to callbacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import safetensors.torch

from mpca.driver.callbacks import Callback
from mpca.driver.objectives import Evaluate
from mpca.driver.status import RunStatus
from mpca.records import EvaluationRecord, MetricsRecord
from tests.spark import logging_jobs
from tests.spark.engine import Told, run_engine

cloudpickle.register_pickle_by_value(logging_jobs)
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(400)]


class Listens(Callback):
    def __init__(self) -> None:
        self.cycles: list[int] = []
        self.evaluations: list[dict[str, Any]] = []
        self.end: dict[str, Any] = {}

    def on_cycle(self, record: dict[str, Any]) -> None:
        self.cycles.append(record["cycle"])
        raise ValueError("a callback that fails at every cycle")

    def on_evaluation(self, record: dict[str, Any]) -> None:
        self.evaluations.append(record["metrics"])

    def on_end(self, summary: dict[str, Any]) -> None:
        self.end = summary


LISTENS, SEEN = Listens(), list[RunStatus]()


@pytest.fixture(scope="module")
def told(spark, work_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return run_engine(
        spark,
        work_dir,
        tmp_path_factory.mktemp("metrics") / "run",
        logging_jobs.train,
        sets=("objectives.targets=accuracy >= 0.975", "objectives.keep_best=max f1"),
        evaluate=Evaluate(logging_jobs.Rises(), every="700ms"),
        on_status=SEEN.append,
        callbacks=(LISTENS,),
    )


def test_the_run_ends_at_its_target_and_its_result_is_the_best_model(told: Told) -> None:
    assert told.ended.reason == "accuracy 0.98 is at or above the target of 0.975"
    evaluations = [one for one in told.records if isinstance(one, EvaluationRecord)]
    assert [one.metrics["accuracy"] for one in evaluations] == pytest.approx([0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97, 0.98])
    assert (evaluations[0].error, evaluations[0].loss) == (None, None)
    assert told.ended.summary["final_metrics"] == evaluations[4].metrics
    saved = safetensors.torch.load_file(Path(told.ended.run_dir) / "model.safetensors")
    assert float(saved["weight"].norm()) == pytest.approx(evaluations[4].metrics["size"])


def test_what_agents_log_is_recorded_about_once_a_second_and_shown(told: Told) -> None:
    logged = [one for one in told.records if isinstance(one, MetricsRecord)]
    for agent in range(3):
        mine = [one for one in logged if one.agent == agent]
        assert 3 <= len(mine) <= mine[-1].t - mine[0].t + 3
        assert all(one.metrics["loss"] is not None for one in mine if one.metrics)
        assert mine[-1].metrics["scale"] is None, "infinite"
        assert [("steps" in one.metrics) for one in mine] == [agent == 0] * len(mine)
        assert mine[-1].steps == told.ended.returns[agent]
    means = [one for one in told.ended.history if one["kind"] == "metrics"]
    assert len(means) <= len(logged)
    assert list(means[-1]["metrics"]) == ["loss", "scale", "steps"]
    assert sum(one["kind"] == "evaluation" for one in told.ended.history) == 8
    assert [name for name, _ in (one.logged for one in SEEN if one.logged is not None)][-1] == "loss"
    assert SEEN[-1].targets == ["accuracy >= 0.975"]
    text = (Path(told.ended.run_dir) / "report.html").read_text(encoding="utf-8")
    assert all(f"<h2>{name}</h2>" in text for name in ("loss", "steps", "accuracy", "f1", "size"))


def test_callbacks_hear_of_it_and_one_that_raises_changes_nothing(told: Told) -> None:
    assert LISTENS.cycles == [one.cycle for one in told.cycles]
    assert [one["accuracy"] for one in LISTENS.evaluations] == pytest.approx([0.9 + n / 100 for n in range(1, 9)])
    assert LISTENS.end["status"] == told.ended.summary["status"] == "reached"
