"""`mpca train` with trackers, on real executors: each has the run's numbers and files. One that is away: tests/track."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mpca.records import EvaluationRecord, MetricsRecord, TrackerRecord, read_records
from tests.cli.test_train_digits import train
from tests.track.test_backends import offline

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]


def test_all_trackers_have_what_the_records_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MLFLOW_ALLOW_FILE_STORE", "true"), ("MLFLOW_DISABLE_TELEMETRY", "true"), ("WANDB_MODE", "offline")):
        monkeypatch.setenv(name, value)
    folder, store = tmp_path / "run", (tmp_path / "store").as_uri()
    trackers = "track.trackers=tensorboard, mlflow, wandb"
    run = train(
        folder,
        trackers,
        f"track.mlflow_uri={store}",
        "cluster.agents=2",
        "objectives.target_error=0",
        "objectives.max_time=25s",
        json_out=False,
    )
    said, warned = run.communicate(timeout=300)
    assert run.returncode == 0, said + warned
    assert "tracker " not in said + warned
    records = read_records(folder / "records.jsonl").records
    errors = [(one.cycle, one.error) for one in records if isinstance(one, EvaluationRecord)]
    calls = {one.tracker: one.run for one in records if isinstance(one, TrackerRecord)}
    assert len(errors) > 3
    assert set(calls) == {"tensorboard", "mlflow", "wandb"}

    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    assert [(one.step, one.value) for one in events.Scalars("evaluation/error")] == [
        (cycle, pytest.approx(error)) for cycle, error in errors
    ]
    logged = [one for one in records if isinstance(one, MetricsRecord) and one.agent == 1]
    assert [one.value for one in events.Scalars("agent-1/loss")] == [pytest.approx(one.metrics["loss"]) for one in logged]
    assert {"agents/loss", "agents/steps_per_s", "agents/samples_per_s", "run/agents", "run/tau", "bytes/driver_in"} <= set(
        events.Tags()["scalars"]
    )

    client = MlflowClient(tracking_uri=store)
    history = client.get_metric_history(calls["mlflow"], "evaluation/error")
    assert [(one.step, one.value) for one in history] == errors
    files = ("config.toml", "model.safetensors", "report.html", "summary.json")
    for name in files:
        kept = Path(client.download_artifacts(calls["mlflow"], name, str(tmp_path)))
        assert kept.read_bytes() == (folder / name).read_bytes()

    rows = [
        {one.key or "/".join(one.nested_key): one.value_json for one in held.history.item}
        for held in offline(folder)
        if held.WhichOneof("record_type") == "history"
    ]
    assert [(int(row["cycle"]), float(row["evaluation/error"])) for row in rows if "evaluation/error" in row] == errors
