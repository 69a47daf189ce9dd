"""The last lines of a run: what they say, that they are known again, and that the cause is below the result."""

from __future__ import annotations

import subprocess
import sys

from mpca.cli.outcome import cause_lines, is_result, result_lines

SUMMARY = {
    "status": "failed",
    "cycles": 9,
    "counts": "cycle",
    "seconds": 75.0,
    "final_error": 0.0222,
    "agents_lost": 2,
    "agents_replaced": 1,
    "cut_off": {"1": "was at work behind its loop 5 s after the stop", "3": "died: exit code 137"},
}


def test_a_result_says_how_it_went_and_what_is_there() -> None:
    lines = result_lines(SUMMARY, "/runs/a", {"report.html", "config.toml"})
    assert lines == [
        "failed: error 2.22 %, 9 cycles, 1m15s of training, 2 agents lost, 1 replaced, "
        "train functions that did not return: agents 1, 3",
        "report /runs/a/report.html",
    ]
    bare = {**SUMMARY, "status": "max_time", "final_error": None, "agents_lost": 0, "cut_off": {}}
    assert result_lines(bare, "hdfs://a/b", {"model.safetensors"}) == [
        "max_time: 9 cycles, 1m15s of training",
        "model  hdfs://a/b/model.safetensors",
    ]
    asked = result_lines({**bare, "counts": "exchange"}, "/runs/a", ())
    assert asked == ["max_time: 9 exchanges, 1m15s of training"]
    for one in lines + asked + result_lines(bare, "/runs/a b", {"report.html", "model.safetensors"}):
        assert is_result(one)
        assert not is_result(f"[agent 1] {one}")
    assert not is_result("model 229.7 KiB, shards of 76.6 KiB; heap needed / there: executor 300.5 MiB / 512.0 MiB")


def test_a_cause_of_one_line_is_said_once_and_a_traceback_before_its_first_line() -> None:
    assert cause_lines("no room\n") == ["mpca: no room"]
    assert cause_lines("agent 0 raised\nTraceback") == ["agent 0 raised", "Traceback", "mpca: agent 0 raised"]
    assert cause_lines("") == ["mpca: "]


def test_the_cause_is_the_last_line_where_both_streams_are_one() -> None:
    """Beside a run each stream has a thread of its own, so nothing but waiting keeps their order."""
    code = """
from mpca.cli.outcome import say_last
from mpca.streams import sturdy_streams
with sturdy_streams():
    for n in range(200):
        say_last([f"{n} result " + 5000 * "x", f"{n} model"], [f"{n} cause"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=True
    )
    assert [line[:9].strip("x") for line in done.stdout.splitlines()] == [
        f"{n} {word}"[:9] for n in range(200) for word in ("result ", "model", "cause")
    ]
