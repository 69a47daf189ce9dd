"""The trackers of a run's configuration, from its first record to its end, in a folder and through a working copy."""

from __future__ import annotations

import json
import logging
import signal
from contextlib import ExitStack
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mpca.api.job import resolve
from mpca.api.location import HdfsRunLocation, LocalRunLocation, RunLocation
from mpca.api.run_files import RunFiles
from mpca.api.signals import Interrupted
from mpca.records import Summary, make, read_records
from mpca.storage import Location
from mpca.track.trackers import Trackers
from tests.api.test_location import RUN, application
from tests.support.fake_executor import wait_until
from tests.track.test_trackers import evaluation

SETS = ("track.trackers=tensorboard", "spark.my.password=hush", "track.project=night")


def attempt(location: RunLocation, number: int, cycles: range, sets: tuple[str, ...] = SETS, status: str = "failed") -> None:
    """One attempt of a run, with an evaluation in each cycle."""
    with ExitStack() as stack:
        app = application(number) if isinstance(location, HdfsRunLocation) else None
        term = location.take(None, number > 1, app)
        files = RunFiles(location, term, resolve(None, sets), replace(RUN, attempt=term, t=cycles[0] - 1.0))
        stack.callback(files.trackers.close)
        files.sink.write(evaluation(cycles[0], float(cycles[0])))
        wait_until(lambda: all(one.began is not None for one in files.trackers._links), "the beginning", 300)
        for cycle in cycles[1:]:
            files.sink.write(evaluation(cycle, float(cycle)))
        summary = Summary(status, "error 0.02", "mpca", 2, 0, 1.0, None, attempts=term)
        assert files.save(9.0, summary, b"model") == ""


@pytest.mark.parametrize("kind", [LocalRunLocation, HdfsRunLocation])
def test_both_attempts_of_a_run_are_one_curve_in_its_folder(tmp_path: Path, kind: type[RunLocation]) -> None:
    folder = tmp_path / "run"
    for number, cycles in ((1, range(1, 4)), (2, range(4, 6))):
        with ExitStack() as stack:
            location = (
                LocalRunLocation(folder, stack) if kind is LocalRunLocation else HdfsRunLocation(Location.parse(folder), stack)
            )
            attempt(location, number, cycles)
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"tensors": 0}).Reload()
    assert [one.step for one in events.Scalars("evaluation/error")] == [1, 2, 3, 4, 5]
    times = [one.wall_time for one in events.Scalars("evaluation/error")]
    assert times[2] - times[0] == pytest.approx(2.0)
    shown = [one.tensor_proto.string_val[0].decode() for one in events.Tensors("config")]
    configured = ("    method.name = mpca-nesterov\n", "    spark.my.password = ***")
    assert [all(one in text for one in configured) for text in shown] == [True, True]
    assert not any("hush" in path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file())
    told = [one for one in read_records(folder / "records.jsonl").records if one.kind == "tracker"]
    assert [(one.tracker, one.run) for one in told] == [("tensorboard", "run")] * 2  # type: ignore[attr-defined]


def test_mlflow_gets_all_files_but_the_model_where_it_is_not_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = f"track.mlflow_uri={(tmp_path / 'store').as_uri()}"
    with ExitStack() as stack:
        location = LocalRunLocation(tmp_path / "run", stack)
        attempt(location, 1, range(1, 3), ("track.trackers=mlflow", "track.model=false", store), "reached")
    kept = {path.name: path.read_bytes() for path in (tmp_path / "store").glob("*/*/artifacts/*")}
    files = ("config.toml", "report.html", "summary.json")
    assert kept == {name: (tmp_path / "run" / name).read_bytes() for name in files}
    assert json.loads(kept["summary.json"])["status"] == "reached"
    (experiment,) = {path.parent.parent.name for path in (tmp_path / "store").glob("*/*/artifacts")}
    assert "name: run\n" in (tmp_path / "store" / experiment / "meta.yaml").read_text(), "the run's own name"


def test_a_tracker_that_does_not_answer_changes_nothing_of_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpca.api.run_files.TRACKERS_END_S", 0.2)
    monkeypatch.setattr("mpca.track.trackers.TRACKERS_END_S", 0.2)
    with ExitStack() as stack, caplog.at_level(logging.WARNING):
        location = LocalRunLocation(tmp_path / "run", stack)
        term = location.take(None, False, None)
        sets = ("track.trackers=mlflow", "track.mlflow_uri=http://127.0.0.1:9")
        files = RunFiles(location, term, resolve(None, sets), RUN)
        stack.callback(files.trackers.close)
        files.sink.write(make("evaluation", 1.0, {"cycle": 1, "seconds": 0.1, "error": 0.5, "loss": None}))
        assert files.save(2.0, Summary("interrupted", "SIGINT", "mpca", 2, 0, 1.0, None), b"model") == ""
    assert [message for message in caplog.messages if "did not take 1 of 1 numbers" in message]
    assert {"report.html", "summary.json", "model.safetensors"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_a_signal_that_comes_after_the_last_step_shortens_the_wait_for_a_tracker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpca.track.trackers.TRACKERS_END_S", 0.2)
    with ExitStack() as stack, caplog.at_level(logging.WARNING):
        location = LocalRunLocation(tmp_path / "run", stack)
        term = location.take(None, False, None)
        monkeypatch.setattr(Trackers, "__init__", partialmethod(Trackers.__init__, program=["sh", "-c", "exec sleep 3600"]))
        sets = ("track.trackers=mlflow", "track.finish_timeout=1h")
        files = RunFiles(location, term, resolve(None, sets), RUN, hurried=lambda: True)
        stack.callback(files.trackers.close)
        assert files.save(2.0, Summary("reached", "error 0.02", "mpca", 2, 0, 1.0, None), b"model") == ""
    assert [message for message in caplog.messages if "nor the end of the run: no answer to 'begin'" in message]


def test_a_run_on_hdfs_is_there_though_an_impatient_user_ends_the_wait_for_trackers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        location = HdfsRunLocation(Location.parse(tmp_path / "run"), stack)
        term = location.take(None, False, application(1))
        files = RunFiles(location, term, resolve(None, SETS[1:]), RUN)
        stack.callback(files.trackers.close)
        monkeypatch.setattr(files.trackers, "end", MagicMock(side_effect=Interrupted(signal.SIGINT)))
        with pytest.raises(Interrupted):
            files.save(2.0, Summary("reached", "error 0.02", "mpca", 2, 0, 1.0, None), b"model")
    assert {"report.html", "summary.json", "model.safetensors"} <= {path.name for path in (tmp_path / "run").iterdir()}
