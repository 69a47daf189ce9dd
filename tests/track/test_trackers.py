"""A tracker is told what it should, in order; one that is away, hangs or dies is named, and holds nothing up."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mpca.config.sections import TRACKERS
from mpca.records import LineWriter, MemorySink, TrackerRecord, make
from mpca.records.lines import line_of
from mpca.timeouts import CHILD_END_S
from mpca.track import trackers as module
from mpca.track.main import BACKENDS, serve
from mpca.track.port import Begin
from mpca.track.trackers import Trackers
from tests.records.test_records import SAMPLES
from tests.support.fake_executor import wait_until

pytestmark = pytest.mark.long

BEGIN = Begin("night-1", "digits", "/there", "hdfs://there", {"method.name": "mpca"}, wall=1000.0)
AWAY = "tracker mlflow is away, and the run goes on: "
SHOWN = "https://ann:***@there/?api_token=***"

Make = Callable[..., Trackers]


@pytest.fixture
def told(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    path = tmp_path / "told.jsonl"
    return lambda: [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Make]:
    """Makes trackers, and ends them."""
    made: list[Trackers] = []

    def make_one(behaviour: str = "", written: Path | None = None, sink: MemorySink | None = None) -> Trackers:
        program = [sys.executable, "-m", "tests.track.standin", behaviour, str(tmp_path / "told.jsonl")]
        made.append(Trackers(sink or MemorySink(), {"mlflow": BEGIN}, written, program))
        return made[-1]

    yield make_one
    for one in made:
        one.close()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRACKERS_END_S", 0.25)
    monkeypatch.setattr(module, "TRACKER_SILENT_S", 0.5)


def evaluation(cycle: int, t: float = 1.0) -> Any:
    return make("evaluation", t, {"cycle": cycle, "seconds": 0.1, "error": 0.25, "loss": None})


def test_it_is_told_the_run_its_numbers_and_its_end_and_the_records_say_what_it_calls_the_run(
    started: Make, told: Callable[[], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = MemorySink()
    one = started(sink=sink)
    for cycle in range(3):
        one.write(evaluation(cycle, float(cycle)))
    wait_until(lambda: any(line["call"] == "log" for line in told()), "its first numbers")
    one.write(evaluation(3, 3.0))
    (tmp_path / "report.html").write_text("x")
    one.end("reached", "error 0.02", [tmp_path / "report.html", tmp_path / "model.safetensors"], 60)
    assert [line["call"] for line in told()] == ["begin", "log", "log", "end"]
    begin, *_, end = told()
    assert (begin["name"], begin["where"], begin["parameters"]) == ("night-1", "hdfs://there", {"method.name": "mpca"})
    numbers = [number for line in told() if line["call"] == "log" for number in line["scalars"]]
    assert numbers == [["evaluation/error", 0.25, cycle, float(cycle)] for cycle in range(4)]
    assert (end["status"], end["reason"], end["files"]) == ("reached", "error 0.02", [str(tmp_path / "report.html")])
    assert sink.records[-2:] == [evaluation(3, 3.0), TrackerRecord(3.0, "mlflow", "0a1b", SHOWN)]
    assert caplog.messages == []


def test_a_later_attempt_goes_on_with_the_same_run_and_numbers(started: Make, told: Callable[[], Any], tmp_path: Path) -> None:
    lines = LineWriter(tmp_path / "records.jsonl")
    for kind, more in [
        ("run", {}),
        ("tracker", {"run": "first"}),
        ("metrics", {"agent": 0, "steps": 40, "metrics": {"loss": 1.0}}),
        ("tracker", {"tracker": "wandb", "run": "other"}),
        ("run", {"attempt": 2}),
    ]:
        lines.write(make(kind, 1.0, {**SAMPLES[kind], **more}))
    lines.close()
    one = started(written=tmp_path / "records.jsonl")
    one.write(make("metrics", 9.0, {"agent": 0, "incarnation": 1, "steps": 2, "metrics": {"loss": 0.5}}))
    one.end("reached", "", [], 60)
    begin, log, _ = told()
    assert begin["run"] == "first"
    assert log["scalars"][0] == ["agent-0/loss", 0.5, 42, 9.0]


def test_records_that_cannot_be_read_begin_anew(started: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "records.jsonl").write_text("{}\n")
    started(written=tmp_path / "records.jsonl").end("reached", "", [], 60)
    assert [message.partition(":")[0] for message in caplog.messages] == ["trackers begin anew"]


def test_the_records_of_a_long_run_are_not_held_in_memory(started: Make, tmp_path: Path) -> None:
    written = tmp_path / "records.jsonl"
    written.write_bytes(line_of(make("cycle", 1.0, SAMPLES["cycle"])) * 3000)
    tracemalloc.start()
    try:
        started(written=written)
        assert tracemalloc.get_traced_memory()[1] < written.stat().st_size / 2
    finally:
        tracemalloc.stop()


def test_one_that_is_away_is_named_once_without_secrets_and_what_it_missed_is_counted(
    started: Make, hasty: None, caplog: pytest.LogCaptureFixture
) -> None:
    one = started("begin is away")
    wait_until(lambda: bool(caplog.messages), "the warning")
    for cycle in range(5):
        one.write(evaluation(cycle))
    began = time.monotonic()
    one.end("reached", "", [], 60)
    assert time.monotonic() - began < 10
    why = f"ConnectionError: {SHOWN} refused"
    assert caplog.messages == [AWAY + why, f"tracker mlflow did not take 5 of 5 numbers, nor the end of the run: {why}"]


@pytest.mark.parametrize("call", ["begin", "log", "end"])
def test_one_that_comes_back_gets_everything(
    started: Make, told: Callable[[], Any], caplog: pytest.LogCaptureFixture, call: str
) -> None:
    one = started(f"{call} fails once")
    one.write(evaluation(1))
    one.end("reached", "", [], 60)
    calls = [line["call"] for line in told()]
    assert calls == [again for name in ("begin", "log", "end") for again in [name] * (1 + (name == call))]
    assert caplog.messages == [f"{AWAY}ConnectionError: {SHOWN} refused"]


def test_one_that_fails_now_and_then_is_named_once_in_ten_minutes(
    started: Make, told: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    one = started("log fails now and then")
    one.write(evaluation(1))
    wait_until(lambda: sum(line["call"] == "log" for line in told()) == 2, "its first numbers")
    one.write(evaluation(2))
    one.end("reached", "", [], 60)
    assert [line["call"] for line in told()] == ["begin", "log", "log", "log", "log", "end"]
    assert caplog.messages == [f"{AWAY}ConnectionError: {SHOWN} refused"]


@pytest.mark.parametrize("call", ["begin", "log"])
def test_one_that_hangs_is_left_alone_at_the_end(
    started: Make, told: Callable[[], Any], hasty: None, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    one = started(f"{call} hangs")
    one.write(evaluation(1))
    wait_until(lambda: any(line["call"] == call for line in told()), "the call")
    began = time.monotonic()
    one.write(evaluation(2))
    assert time.monotonic() - began < 0.5, "nobody waits while the run goes on"
    one.end("reached", "", [], 60)
    assert time.monotonic() - began < 10
    said = f"tracker mlflow did not take 2 of 2 numbers, nor the end of the run: no answer to {call!r}"
    assert caplog.messages == [said]


def test_one_that_hangs_in_the_end_has_its_time(
    started: Make, told: Callable[[], Any], hasty: None, caplog: pytest.LogCaptureFixture
) -> None:
    one = started("end hangs")
    one.write(evaluation(1))
    wait_until(lambda: any(line["call"] == "log" for line in told()), "the numbers")
    began = time.monotonic()
    one.end("reached", "", [], 3)
    assert 2.9 < time.monotonic() - began < 10
    assert caplog.messages == ["tracker mlflow did not take 0 of 1 numbers, nor the end of the run: no answer to 'end'"]


def test_a_signal_ends_the_wait_for_one_that_hangs_in_the_end(
    started: Make, told: Callable[[], Any], hasty: None, caplog: pytest.LogCaptureFixture
) -> None:
    one = started("end hangs")
    began = time.monotonic()
    one.end("reached", "", [], 60, lambda: bool(told()) and told()[-1]["call"] == "end")
    assert time.monotonic() - began < 30
    assert caplog.messages == ["tracker mlflow did not take 0 of 0 numbers, nor the end of the run: no answer to 'end'"]


def test_one_that_dies_is_named_with_its_last_words(started: Make, hasty: None, caplog: pytest.LogCaptureFixture) -> None:
    one = started("log dies")
    one.write(evaluation(1))
    wait_until(lambda: bool(caplog.messages), "the warning")
    one.write(evaluation(2))
    one.end("reached", "", [], 60)
    why = f"its process ended: exit_code=3, last output: no room at {SHOWN}"
    assert caplog.messages == [AWAY + why, f"tracker mlflow did not take 2 of 2 numbers, nor the end of the run: {why}"]


def test_one_that_cannot_be_started_is_named(caplog: pytest.LogCaptureFixture, hasty: None) -> None:
    one = Trackers(MemorySink(), {"wandb": BEGIN}, program=["/nowhere/python"])
    one.end("reached", "", [], 60)
    assert caplog.messages[0].startswith("tracker wandb is away, and the run goes on: it could not be started: [Errno 2]")
    one.close()


def test_one_whose_output_has_no_place_is_named(
    caplog: pytest.LogCaptureFixture, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> Any:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    one = Trackers(MemorySink(), {"wandb": BEGIN})
    one.end("reached", "", [], 60)
    assert caplog.messages[0] == AWAY.replace("mlflow", "wandb") + "it could not be started: [Errno 28] no room"
    one.close()


def test_beyond_the_limit_the_oldest_numbers_are_dropped(
    started: Make, told: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    one = started("begin fails once")
    wait_until(lambda: bool(caplog.messages), "the warning")
    for cycle in range(8):
        one.write(evaluation(cycle))
    one.end("reached", "", [], 60)
    assert [number[2] for line in told() if line["call"] == "log" for number in line["scalars"]] == [5, 6, 7]
    assert caplog.messages[1:] == ["tracker mlflow did not take 5 of 8 numbers: it was away"]


def test_many_numbers_are_told_without_a_pause(
    started: Make, told: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 3)
    monkeypatch.setattr(module, "_EVERY_S", 3600.0)
    one = started("begin fails once")
    wait_until(lambda: bool(caplog.messages), "the warning")
    for cycle in range(8):
        one.write(evaluation(cycle))
    wait_until(lambda: sum(line["call"] == "log" for line in told()) == 2, "all but the last two")
    assert [number[2] for line in told() if line["call"] == "log" for number in line["scalars"]] == [0, 1, 2, 3, 4, 5]
    one.end("reached", "", [], 60)
    assert [number[2] for line in told() if line["call"] == "log" for number in line["scalars"]] == list(range(8))


def test_a_run_without_trackers_starts_nothing() -> None:
    memory = MemorySink()
    one = Trackers(memory, {})
    one.write(evaluation(1))
    one.end("reached", "", [], 60)
    one.close()
    assert memory.records == [evaluation(1)]


def test_a_run_that_breaks_off_leaves_no_process(
    started: Make, told: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    one = started("begin hangs")
    wait_until(lambda: bool(told()), "its begin")
    with caplog.at_level(logging.CRITICAL):
        one.close()
    wait_until(lambda: not Path(f"/proc/{told()[0]['pid']}").exists(), "the end of its process")


def test_one_that_died_long_ago_is_not_killed_again_since_another_process_may_have_its_id(
    started: Make, hasty: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = started("log dies")
    one.write(evaluation(1))
    wait_until(lambda: bool(caplog.messages), "the warning")
    one._links[0]._thread.join(60)
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: killed.append(group))
    one.end("reached", "", [], 60)
    one.close()
    assert killed == []


def test_one_that_answers_is_ended_at_once_when_nobody_tells_it_the_end(started: Make, told: Callable[[], Any]) -> None:
    one = started()
    one.write(evaluation(1))
    wait_until(lambda: any(line["call"] == "log" for line in told()), "its first numbers")
    began = time.monotonic()
    one.close()
    assert time.monotonic() - began < CHILD_END_S
    assert not Path(f"/proc/{told()[0]['pid']}").exists()


def test_one_that_is_ended_while_it_starts_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[subprocess.Popen[bytes]] = []
    closing = threading.Event()

    class Slow(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **named: Any) -> None:
            closing.wait(60)
            super().__init__(*args, **named)
            made.append(self)

    monkeypatch.setattr(subprocess, "Popen", Slow)
    one = Trackers(MemorySink(), {"mlflow": BEGIN}, program=["sh", "-c", "exec sleep 3600"])
    threading.Timer(0.1, closing.set).start()
    one.close()
    assert [process.returncode for process in made] == [-signal.SIGKILL]


def test_one_that_begins_after_the_last_record_is_in_the_records(started: Make) -> None:
    sink = MemorySink()
    one = started(sink=sink)
    one.write(evaluation(1, 4.5))
    one.end("reached", "", [], 60)
    assert sink.records == [evaluation(1, 4.5), TrackerRecord(4.5, "mlflow", "0a1b", SHOWN)]


def test_tries_come_at_growing_intervals() -> None:
    answers: list[Any] = []
    slept: list[float] = []

    def fails() -> Any:
        if len(slept) < 7:
            raise ConnectionError("no\nmore")
        return type("Fine", (), {"log": lambda self, scalars: None})()

    serve([b'{"do": "log", "scalars": []}'], answers.append, fails, slept.append)
    assert slept == [1, 2, 4, 8, 16, 30, 30]
    assert answers == [{"away": "ConnectionError: no"}] * 7 + [{"done": {}}]


def test_every_tracker_of_the_configuration_has_its_class() -> None:
    assert tuple(BACKENDS) == TRACKERS
