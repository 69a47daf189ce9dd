"""Records as lines and back, files that were cut off, the summary, the run folder."""

from __future__ import annotations

import json
import logging
import math
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from mpca.errors import ConfigError
from mpca.records import (
    KINDS,
    LineWriter,
    MemorySink,
    Record,
    RunFolder,
    Summary,
    from_json,
    make,
    read_records,
    read_summary,
    to_json,
    write_summary,
)

SAMPLES: dict[str, dict[str, Any]] = {
    "run": {"name": "digits", "method": "mpca", "num_agents": 4, "seed": 1, "shards": 3, "phases": 3, "targets": ["f1 >= 0.9"]},
    "begin": {"agents": 4, "trained": 12.5, "shards": 6, "period_s": 5.25, "fixed_s": 0.125, "wire_s": 4.5},
    "agent": {"event": "lost", "index": 3, "incarnation": 1, "host": "h", "executor_id": "2", "pid": 77, "reason": "killed"},
    "cycle": {
        "cycle": 5,
        "shard": 2,
        "contributors": {0: {"incarnation": 1, "tau": 13, "crc": 123}, 11: {"incarnation": 2, "tau": 9, "crc": 5}},
        "left_out": {3: "late"},
        "alpha": 0.5,
        "beta": 0.99,
        "gamma": 0.1,
        "stages": {"reduce": {"shard": 2, "start": 1.0, "end": 1.5}},
        "bytes": {"driver_in": 1, "driver_out": 2, "in": 3, "out": 4},
        "pauses": {0: [1.0, 1.25]},
    },
    "exchange": {
        "cycle": 7,
        "shard": 0,
        "agent": 2,
        "incarnation": 1,
        "number": 3,
        "tau": 10,
        "staleness": 2,
        "version": 8,
        "share": 0.3,
        "wait": 0.25,
        "served": 0.01,
        "bytes": {"driver_in": 24, "driver_out": 24},
    },
    "evaluation": {"cycle": 5, "seconds": 0.2, "error": 0.1, "loss": 0.3, "metrics": {"accuracy": 0.9, "ppl": None}},
    "metrics": {"agent": 3, "incarnation": 1, "steps": 130, "metrics": {"loss": 0.25, "lr": None}},
    "tracker": {"tracker": "mlflow", "run": "0a1b", "url": "http://there/#/runs/0a1b"},
    "evaluator": {"event": "restarted", "cycle": 5, "reason": "it ended: exit_code=-9 (SIGKILL)"},
    "backup": {"path": "p", "cycle": 5, "bytes": 10, "seconds": 0.1, "ok": True},
    "pause": {"start": 1.0, "end": None, "reason": "1 of 2 agents"},
    "gap": {"count": 3, "start": 1.0, "end": 2.5, "reason": "no room"},
    "end": {"status": "reached", "reason": "error 0.02"},
}
#: Design, 6.1: what scripts may rely on.
PROMISED = {
    "agent": {"event", "index", "incarnation", "host", "executor_id", "pid", "reason"},
    "cycle": {"cycle", "shard", "contributors", "left_out", "alpha", "beta", "gamma", "stages", "bytes"},
    "evaluation": {"cycle", "seconds", "error", "loss"},
    "metrics": {"agent", "incarnation", "steps", "metrics"},
    "evaluator": {"event", "cycle", "reason"},
    "tracker": {"tracker", "run"},
    "backup": {"path", "cycle", "bytes", "seconds", "ok", "reason"},
    "pause": {"start", "end", "reason"},
    "end": {"status", "reason"},
}
SUMMARY_KEYS = (
    "status reason method num_agents seed seconds seconds_to_first_step submit_seconds cycles counts steps samples final_error "
    "final_metrics best_error target_error seconds_to_target evaluations pause_share model_bytes bytes_in_driver "
    "bytes_out_driver "
    "bytes_data_remote bad_records agents_lost agents_replaced cut_off backups attempts resumed_from versions final"
)


def samples() -> list[Record]:
    return [make(kind, float(n), values) for n, (kind, values) in enumerate(SAMPLES.items())]


@pytest.mark.parametrize("record", samples(), ids=lambda one: one.kind)
def test_a_record_survives_its_line(record: Record) -> None:
    line = json.loads(json.dumps(to_json(record)))
    assert list(line)[:2] == ["kind", "t"]
    assert from_json(line) == record
    assert PROMISED.get(record.kind, set()) <= set(line)


def test_every_kind_has_a_sample() -> None:
    assert set(SAMPLES) == set(KINDS)


def test_a_reason_is_there_only_where_there_is_one() -> None:
    assert "reason" not in to_json(make("agent", 0.0, {**SAMPLES["agent"], "reason": ""}))


def test_numbers_that_json_lacks_become_null() -> None:
    record = make("evaluation", 1.0, {**SAMPLES["evaluation"], "loss": math.nan, "error": math.inf})
    assert to_json(record)["loss"] is None
    assert to_json(record)["error"] is None


def test_unknown_kinds_and_missing_fields_are_named() -> None:
    with pytest.raises(ValueError, match="no such kind of record: 'cycel'"):
        make("cycel", 0.0, {})
    with pytest.raises(ValueError, match="not a whole end record"):
        from_json({"kind": "end", "t": 1.0})
    with pytest.raises(TypeError):
        make("end", 0.0, {"status": "reached", "reasn": ""})
    assert from_json({"kind": "end", "t": 1.0, "status": "failed", "reason": "", "later": 1}).t == 1.0


# ---- files ---------------------------------------------------------------------------------------------------------


def test_each_line_is_there_when_write_returns(tmp_path: Path) -> None:
    writer = LineWriter(tmp_path / "records.jsonl")
    memory = MemorySink()
    for n, record in enumerate(samples(), start=1):
        writer.write(record)
        memory.write(record)
        assert len(read_records(writer.path).records) == n
    writer.close()
    writer.close()
    assert read_records(writer.path).records == memory.records == samples()


def test_a_file_cut_off_anywhere_gives_its_whole_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "records.jsonl"
    writer = LineWriter(path)
    for record in samples():
        writer.write(record)
    writer.close()
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        whole = data[:cut].count(b"\n")
        caplog.clear()
        file = read_records(path)
        assert file.records == samples()[:whole]
        tail = data[:cut].rpartition(b"\n")[2]
        assert file.torn == (tail.decode() or None)
        assert bool(caplog.records) == bool(tail)


def test_a_later_attempt_goes_on_after_a_torn_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "records.jsonl"
    line = json.dumps(to_json(samples()[-1]))
    path.write_text(line + "\n" + line[:20])
    with caplog.at_level(logging.WARNING):
        writer = LineWriter(path)
    writer.write(samples()[0])
    writer.close()
    assert [one.kind for one in read_records(path).records] == ["end", "run"]
    assert "torn last line" in caplog.text


def test_a_damaged_line_in_the_middle_is_an_error_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"kind": "end", "t": 1, "status": "failed", "reason": ""}\n{"kind"\n[]\n')
    with pytest.raises(ValueError, match="line=2"):
        read_records(path)


def test_a_full_disk_leaves_no_part_of_a_line() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full, the device that is always full")
    writer = LineWriter("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        writer.write(samples()[0])
    writer.close()


# ---- summary and folder --------------------------------------------------------------------------------------------


def summary(**changes: Any) -> Summary:
    values = {"status": "reached", "reason": "", "method": "mpca", "num_agents": 4, "seed": 0, "seconds": 1.5}
    return Summary(**{**values, "seconds_to_first_step": 0.5, **changes})


def test_summary_has_the_promised_keys_in_order(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_summary(path, summary(best_error=math.nan))
    assert " ".join(json.loads(path.read_text())) == SUMMARY_KEYS
    assert [one.name for one in fields(Summary)] == SUMMARY_KEYS.split()
    assert read_summary(path) == summary()
    assert [one.name for one in tmp_path.iterdir()] == ["summary.json"]


def test_a_summary_is_read_as_it_was_written(tmp_path: Path) -> None:
    one = summary(cut_off={"1": "was at work behind its loop"}, samples=None, seconds_to_target=2.5, versions={"mpca": "0"})
    write_summary(tmp_path / "summary.json", one)
    assert read_summary(tmp_path / "summary.json") == one


def test_summary_refuses_an_end_that_no_run_has(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'finished'"):
        summary(status="finished")
    (tmp_path / "s.json").write_text("{}")
    with pytest.raises(ValueError, match="not a summary"):
        read_summary(tmp_path / "s.json")


def test_an_existing_folder_is_refused_unless_resumed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a" / "run")
    assert folder.create() is True
    with pytest.raises(ConfigError, match=r"run folder exists: --run-dir=.*--resume auto"):
        folder.create()
    assert folder.create(resume=True) is False
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is not a folder"):
        RunFolder(tmp_path / "file").create(resume=True)


def test_default_folder_has_name_and_time() -> None:
    assert str(RunFolder.named("digits", wall=0.0).path) == "runs/digits-19700101-000000"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"kind": ' * 100_000, "nested too deeply"),
        (b'{"kind": "end", "t": NaN, "status": "failed", "reason": ""}', "not a number of JSON: NaN"),
        (b'{"kind": "end", "t": "1", "status": "failed", "reason": ""}', "not a time: t='1'"),
        (b"[]", "line=1"),
    ],
)
def test_a_line_that_was_damaged_is_named(tmp_path: Path, line: bytes, words: str) -> None:
    (tmp_path / "records.jsonl").write_bytes(line + b"\n")
    with pytest.raises(ValueError, match=r"^not a record: path=.*, line=1") as raised:
        read_records(tmp_path / "records.jsonl")
    assert words in str(raised.value)


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"status": "rea', '{"status": "reached"}', '{"seconds": NaN}'])
def test_a_summary_that_was_damaged_is_a_value_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(ValueError, match=r".+"):
        read_summary(tmp_path / "summary.json")
