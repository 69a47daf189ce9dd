"""What the real packages stored, read back by their own readers; each tracker in its own process, as in a run."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpca.records import LineWriter, MemorySink, TrackerRecord, make
from mpca.track import tensorboard as tensorboard_module
from mpca.track.mlflow import MLflow, fitting
from mpca.track.port import Begin
from mpca.track.scalars import Scalar
from mpca.track.tensorboard import TensorBoard
from mpca.track.trackers import Trackers
from tests.support.fake_executor import wait_until

pytestmark = pytest.mark.long

WALL = 1_700_000_000.0
METRICS = {"agent": 0, "incarnation": 1, "steps": 20, "metrics": {"top 5 (%)": 0.5}}


def evaluation(cycle: int, t: float) -> Any:
    return make("evaluation", t, {"cycle": cycle, "seconds": 0.1, "error": 0.25 / cycle, "loss": None})


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a store of files, which needs no server
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")  # of this process
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("report.html", "model.safetensors"):
        (folder / name).write_text(name)
    parameters = {"method.name": "mpca", "data.path": "", "spark.password": "***"}
    return Begin("night-1", "digits", str(folder), "hdfs://there", parameters, WALL, uri=(tmp_path / "store").as_uri())


def trained(name: str, begin: Begin, status: str = "reached", first: int = 1) -> TrackerRecord | None:
    """A run of two evaluations, and its end."""
    sink, folder = MemorySink(), Path(begin.folder)
    trackers = Trackers(sink, {name: begin})
    try:
        trackers.write(make("metrics", 1.0, METRICS))
        trackers.write(evaluation(first, 1.5))
        wait_until(lambda: trackers._links[0].began is not None, "its begin", 300)
        trackers.write(evaluation(first + 1, 2.5))
        trackers.end(status, "error 0.02", [folder / "report.html", folder / "model.safetensors"], 300)
    finally:
        trackers.close()
    return next((one for one in sink.records if isinstance(one, TrackerRecord)), None)


@pytest.fixture
def read_events() -> Callable[[Path], Any]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return lambda folder: EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()


def test_tensorboard_reads_numbers_steps_times_and_the_configuration(
    begin: Begin, read_events: Callable[[Path], Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert trained("tensorboard", begin) == TrackerRecord(2.5, "tensorboard", "night-1")
    folder = Path(begin.folder) / "tensorboard"
    events = read_events(folder)
    assert set(events.Tags()["scalars"]) == {"evaluation/error", "agent-0/top 5 (%)", "agents/top 5 (%)"}
    errors = [(one.step, one.wall_time, one.value) for one in events.Scalars("evaluation/error")]
    assert errors == [(1, WALL + 1.5, 0.25), (2, WALL + 2.5, 0.125)]
    assert [(one.step, one.value) for one in events.Scalars("agents/top 5 (%)")] == [(20, 0.5)]
    told = {name: events.Tensors(name)[0].tensor_proto.string_val[0].decode() for name in ("config", "end")}
    assert "    method.name = mpca\n" in told["config"]
    assert told["end"] == "reached: error 0.02"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())} == {0o700, 0o600}
    assert caplog.messages == []


def test_tensorboard_reads_the_parts_of_a_run_on_hdfs_as_one(
    begin: Begin, read_events: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard_module, "_PART_EVERY_S", 0.0)
    now = [WALL]
    monkeypatch.setattr(tensorboard_module.time, "time", lambda: now[0])
    one = TensorBoard()
    one.begin(replace(begin, in_parts=True))
    for cycle in range(1, 101):
        now[0] = WALL + cycle
        one.log([Scalar("evaluation/error", 1 / cycle, cycle, float(cycle))])
    one.end("reached", "", [])
    folder = Path(begin.folder) / "tensorboard"
    assert 50 < len(list(folder.iterdir())) < 90, "fewer as the run grows older"
    assert [each.step for each in read_events(folder).Scalars("evaluation/error")] == list(range(1, 101))


def test_tensorboard_on_a_full_disk_loses_and_repeats_nothing(
    begin: Begin, read_events: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, write = TensorBoard(), os.write
    one.begin(begin)
    room = [30]

    def short(fd: int, data: bytes) -> int:
        if room[0] == 0:
            raise OSError(28, "No space left on device")
        done = write(fd, data[: room[0]])
        room[0] -= done
        return done

    scalars = [Scalar("evaluation/error", 0.5, step, 1.0) for step in (1, 2)]
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", short)
        with pytest.raises(OSError, match="No space"):
            one.log(scalars)
    one.log(scalars)
    one.end("reached", "", [])
    assert [each.step for each in read_events(Path(begin.folder) / "tensorboard").Scalars("evaluation/error")] == [1, 2]


@pytest.fixture
def store(begin: Begin) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=begin.uri)


def test_mlflow_has_parameters_metrics_files_and_the_end(begin: Begin, store: Any, caplog: pytest.LogCaptureFixture) -> None:
    record = trained("mlflow", begin)
    assert caplog.messages == []
    assert record is not None
    run = store.get_run(record.run)
    assert store.get_experiment(run.info.experiment_id).name == "digits"
    assert (run.info.run_name, run.info.status) == ("night-1", "FINISHED")
    assert run.data.params == {"method.name": "mpca", "spark.password": "***"}
    errors = store.get_metric_history(record.run, "evaluation/error")
    assert [(one.step, one.timestamp, one.value) for one in errors] == [
        (1, 1_700_000_001_500, 0.25),
        (2, 1_700_000_002_500, 0.125),
    ]
    assert run.data.metrics["agents/top 5 ___"] == 0.5
    assert {one.path for one in store.list_artifacts(record.run)} == {"report.html", "model.safetensors"}
    held = {key: value for key, value in run.data.tags.items() if key.startswith("mpca.")}
    assert held == {"mpca.folder": "hdfs://there", "mpca.attempt": "1", "mpca.status": "reached", "mpca.reason": "error 0.02"}


def test_mlflow_goes_on_with_the_run_of_an_earlier_attempt(begin: Begin, store: Any) -> None:
    for attempt, status in ((1, "failed"), (2, "interrupted")):
        one = MLflow()
        held = store.search_runs([each.experiment_id for each in store.search_experiments()]) if attempt > 1 else []
        run, url = one.begin(
            replace(begin, attempt=attempt, run=held[0].info.run_id if held else "", parameters={"a": str(attempt)})
        )
        one.log([Scalar("evaluation/error", 0.5, attempt, float(attempt))])
        one.end(status, "", [])
        assert url == ""
        assert store.get_run(run).info.status == {1: "FAILED", 2: "KILLED"}[attempt]
    assert [one.step for one in store.get_metric_history(run, "evaluation/error")] == [1, 2]
    assert store.get_run(run).data.params == {"a": "1"}


def test_mlflow_knows_the_end_of_a_run_whose_files_it_cannot_take(begin: Begin, store: Any) -> None:
    one = MLflow()
    run, _ = one.begin(begin)
    with pytest.raises(OSError, match="nowhere"):
        one.end("failed", "no room", ["/nowhere"])
    held = store.get_run(run)
    assert (held.info.status, held.data.tags["mpca.status"], held.data.tags["mpca.reason"]) == ("FAILED", "failed", "no room")


@pytest.mark.parametrize("gone", ["removed", "another server"])
def test_a_run_that_mlflow_does_not_know_any_more_begins_anew(begin: Begin, store: Any, tmp_path: Path, gone: str) -> None:
    run, _ = MLflow().begin(begin)
    if gone == "removed":
        store.delete_run(run)
    uri = begin.uri if gone == "removed" else (tmp_path / "other").as_uri()
    one = MLflow()
    again, _ = one.begin(replace(begin, uri=uri, run=run, attempt=2))
    assert again != run
    assert one.begin(replace(begin, uri=uri, run=run, attempt=2))[0] == again, "a second try goes on with it"
    from mlflow import MlflowClient

    held = MlflowClient(tracking_uri=uri).get_run(again)
    assert held.data.params == {"method.name": "mpca", "spark.password": "***"}
    assert held.data.tags["mpca.attempt"] == "2"


@pytest.mark.parametrize(
    ("name", "expected"), [("agents/a.b-c d", "agents/a.b-c d"), ("agents//ä:1", "agents/__1"), ("agents/../x", "agents/x")]
)
def test_names_that_mlflow_refuses_are_changed(name: str, expected: str) -> None:
    assert fitting(name) == expected


def test_wandb_has_parameters_metrics_and_files_in_its_offline_file(begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    record = trained("wandb", begin)
    assert caplog.messages == []
    assert record is not None
    held = list(offline(Path(begin.folder)))
    (run,) = (one.run for one in held if one.WhichOneof("record_type") == "run")
    assert (run.run_id, run.display_name, run.project) == (record.run, "night-1", "digits")
    config = {one.key: one.value_json for one in run.config.update}
    assert (config["method.name"], config["spark.password"]) == ('"mpca"', '"***"')
    rows = [
        {each.key or "/".join(each.nested_key): each.value_json for each in one.history.item}
        for one in held
        if one.WhichOneof("record_type") == "history"
    ]
    errors = [(row["evaluation/error"], row["cycle"], row["seconds"]) for row in rows if "evaluation/error" in row]
    assert errors == [("0.25", "1", "1.5"), ("0.125", "2", "2.5")]
    assert [(row["agents/top 5 (%)"], row["steps"]) for row in rows if "agents/top 5 (%)" in row] == [("0.5", "20")]
    axes = {one.metric.name or one.metric.glob_name: one.metric.step_metric for one in held if one.HasField("metric")}
    assert {key: axis for key, axis in axes.items() if axis} == {
        "agent*": "steps",
        **dict.fromkeys(("bytes/*", "evaluation/*", "run/*"), "cycle"),
    }
    artifacts = {one.artifact.name: one.artifact.type for one in held if one.WhichOneof("record_type") == "artifact"}
    artifacts |= {
        one.request.log_artifact.artifact.name: one.request.log_artifact.artifact.type
        for one in held
        if one.WhichOneof("record_type") == "request" and one.request.HasField("log_artifact")
    }
    assert artifacts == {f"report-{record.run}": "run", f"model-{record.run}": "model"}
    (ended,) = (one.exit for one in held if one.WhichOneof("record_type") == "exit")
    assert ended.exit_code == 0


def offline(folder: Path) -> Iterator[Any]:
    """Records of W&B's offline file: LevelDB's log format behind a header of seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    data, at, whole = path.read_bytes(), 7, b""
    assert data.startswith(b":W&B")
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield Record.FromString(whole)
            whole = b""


def test_a_url_that_does_not_answer_is_named_without_its_secret(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:hush@127.0.0.1:9/?token=hush")
    trackers = Trackers(MemorySink(), {"mlflow": replace(begin, uri="")})
    try:
        trackers.write(evaluation(1, 1.0))
        wait_until(lambda: bool(caplog.messages), "the warning", 300)
        trackers.end("reached", "", [], 60)
    finally:
        trackers.close()
    away, missed = caplog.messages
    assert away.startswith(
        "tracker mlflow is away, and the run goes on: MlflowException: API request to http://ann:***@127.0.0.1:9/"
    )
    assert missed.startswith("tracker mlflow did not take 1 of 1 numbers, nor the end of the run: MlflowException: API request")
    assert "hush" not in caplog.text


def test_mlflow_takes_settings_of_any_name(begin: Begin) -> None:
    odd = {"spark.hadoop.a$b": "1", "spark.a//b": "2", "spark." + "c" * 300: "3"}
    began = replace(begin, parameters=odd)
    run, _ = MLflow().begin(began)
    from mlflow import MlflowClient

    kept = MlflowClient(tracking_uri=began.uri).get_run(run).data.params
    assert kept == {"spark.hadoop.a_b": "1", "spark.a/b": "2", "spark." + "c" * 244: "3"}


def test_a_file_of_events_has_its_head_though_the_disk_was_full_at_first(
    begin: Begin, read_events: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [True]

    class Full(LineWriter):
        def append(self, line: bytes) -> None:
            if full:
                full.clear()
                raise OSError(errno.ENOSPC, "no room")
            super().append(line)

    monkeypatch.setattr(tensorboard_module, "LineWriter", Full)
    tracker = TensorBoard()
    with pytest.raises(OSError, match="no room"):
        tracker.begin(begin)
    tracker.begin(begin)
    tracker.end("reached", "", [])
    assert read_events(Path(begin.folder) / "tensorboard").file_version == 2.0
