"""`make bench`: what is measured, what is kept of it, and what counts as worse."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpca.cli.bench import bench
from mpca.cli.bench.suite import report, run, yardstick
from mpca.cli.bench.suite.comparison import FORMAT, QUIET_IDLE, changes, compared, figures, lines, loaded, read
from mpca.cli.bench.suite.rows import ROWS, Figure, Row, on_gpu, short

MACHINE = {"cpu": "a", "cores": 2, "memory_gib": 8}
SIM = Row("sim", ("sim",), (Figure("wall_s", "lower", "s"), Figure("rate", "higher", "1/s"), Figure("share", "lower")), 60.0, 2)
OTHER = Row("other", ("other",), (Figure("share", "lower"),), 30.0, 2)
QUIET, BUSY = {"idle": 0.97, "load_1min": 0.1}, {"idle": 0.4, "load_1min": 5.0}


def attempt(yard: float = 1.0, **result: Any) -> dict[str, Any]:
    return {"yardstick": {"cpu": yard}, "result": result}


def of(*values: float, better: str = "lower") -> dict[str, Any]:
    ordered = sorted(values)
    median = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return {"better": better, "unit": "1", "values": list(values), "median": median, "noise": ordered[-1] - ordered[0]}


def whole(figures_of: dict[str, Any], **changed: Any) -> dict[str, Any]:
    rows = {name: {"attempts": [], "figures": one} for name, one in figures_of.items()}
    return {"format": FORMAT, "machine": MACHINE, "rows": rows, **changed}


def verdict(before: dict[str, Any] | None, now: dict[str, Any] | None) -> str:
    (change,) = changes("row", {"key": before} if before else {}, {"key": now} if now else {})
    return change.verdict


def test_a_machine_that_is_half_as_fast_today_changes_no_figure() -> None:
    fast = figures(SIM, [attempt(0.5, wall_s=1.0, rate=100.0, share=0.1)])
    slow = figures(SIM, [attempt(1.0, wall_s=2.0, rate=50.0, share=0.1)])
    assert fast == slow
    assert {key: one["values"] for key, one in fast.items()} == {"wall_s": [2.0], "rate": [50.0], "share": [0.1]}


def test_noise_is_the_range_of_repeated_measurements() -> None:
    found = figures(SIM, [attempt(share=0.5), attempt(share=0.2), attempt(share=0.3)])["share"]
    assert (found["median"], found["noise"]) == (0.3, pytest.approx(0.3))


def test_results_with_a_reason_do_not_count_but_those_on_loopback() -> None:
    found = figures(OTHER, [attempt(share=1.0, reason="busy"), attempt(share=2.0, reason="loopback"), attempt(share=None)])
    assert found["share"]["values"] == [2.0]


def test_figures_are_found_inside_lists() -> None:
    row = Row(
        "x", ("x",), (Figure("sizes.1.share", "lower"), Figure("sizes.2.share", "lower"), Figure("share.0", "lower")), 1.0
    )
    found = figures(row, [attempt(sizes=[{"share": 1.0}, {"share": 2.0}], share=5.0)])
    assert {key: one["median"] for key, one in found.items()} == {"sizes.1.share": 2.0}


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (of(1.0, 1.1), of(1.3, 1.4), "worse"),
        (of(1.0, 1.1, better="higher"), of(1.3, 1.4, better="higher"), "better"),
        (of(1.3, 1.4), of(1.0, 1.1), "better"),
        (of(1.3, 1.4, better="higher"), of(1.0, 1.1, better="higher"), "worse"),
        (of(1.0, 1.1), of(1.0, 1.4), "same"),  # its own noise is larger than the change
        (of(0.8, 1.4), of(1.3, 1.4), "same"),  # the noise of before
        (of(0.0, 0.0), of(0.1, 0.1), "worse"),  # a share that was zero
        (of(1.0), of(5.0, 5.0), "once"),
        (None, of(1.0, 1.0), "new"),
        (of(1.0, 1.0), None, "missing"),
    ],
)
def test_a_change_is_judged_by_the_larger_noise(before: Any, now: Any, expected: str) -> None:
    assert verdict(before, now) == expected


def test_worse_is_told_first_and_rows_without_a_counterpart_too() -> None:
    before = whole({"a": {"x": of(1.0, 1.1), "y": of(1.0, 1.1)}, "gone": {"x": of(1.0, 1.0)}})
    now = whole({"a": {"x": of(2.0, 2.1), "y": of(1.0, 1.1)}, "fresh": {"x": of(1.0, 1.0)}})
    comparison = compared(before, now)
    assert [(one.row, one.key) for one in comparison.worse] == [("a", "x")]
    said = lines(comparison)
    assert [line.split()[:2] for line in said] == [["WORSE", "a:"], ["new", "fresh:"], ["missing", "gone:"], ["same", "1"]]
    assert "before=1.05  now=2.05  noise=0.1  ratio=1.952" in said[0]


@pytest.mark.parametrize("busy", [0, 1])
def test_what_was_measured_on_a_busy_machine_is_not_judged(busy: int) -> None:
    """In either of the two runs."""
    rows = [{"loaded": busy == number, **of(*values)} for number, values in enumerate([(1.0, 1.1), (9.0, 9.1)])]
    comparison = compared(whole({"a": {"x": rows[0]}}), whole({"a": {"x": rows[1]}}))
    assert comparison.worse == ()
    said = lines(comparison)
    assert said[0].startswith("BUSY    a: x ")
    assert said[1] == "BUSY: less than 80% of the CPU was idle before or after a measurement; it is not judged"


def test_a_measurement_says_what_else_the_machine_did(tmp_path: Path) -> None:
    for number, looks in enumerate((QUIET, BUSY, {**QUIET, "idle": QUIET_IDLE})):
        path, kept = run.opened(tmp_path, str(number), MACHINE, {}, 100.0 * number)
        said = measured(path, kept, lambda row: {"result": {"share": 1.0}}, (OTHER,), looks)
        (first, _) = read(path.read_bytes())["rows"]["other"]["attempts"]
        assert first["at_rest"] == [looks, looks]
        assert loaded(first) == kept["rows"]["other"]["figures"]["share"]["loaded"] == (looks is BUSY)
        assert said[0] == ("other: 1 of 2, 0 s, on a busy machine" if looks is BUSY else "other: 1 of 2, 0 s")
    assert loaded({"at_rest": [QUIET, BUSY]})
    assert not loaded({})  # of a run from before


@pytest.mark.parametrize(
    ("reason", "told"),
    [("", ""), ("loopback", ""), ("the machine had no idle CPU", ", which does not count: the machine had no idle CPU")],
)
def test_a_measurement_that_does_not_count_is_told_with_the_reason(tmp_path: Path, reason: str, told: str) -> None:
    path, kept = run.opened(tmp_path, "a", MACHINE, {}, 0.0)
    said = measured(path, kept, lambda row: {"result": {"share": 1.0, "reason": reason}}, (OTHER,))
    assert said == [f"other: {number} of 2, 0 s{told}" for number in (1, 2)]


def test_the_machine_at_rest_is_what_the_kernel_counts() -> None:
    found = report.at_rest()
    assert 0 <= found["idle"] <= 1
    assert found["load_1min"] >= 0


def test_a_plan_says_how_long_what_is_missing_takes(tmp_path: Path) -> None:
    path, kept = run.opened(tmp_path, "c", MACHINE, {}, 0.0)
    ending = ", less what cannot run here: "
    assert run.plan(kept, (SIM, OTHER), None) == [f"about 3 minutes on a quiet machine{ending}sim x2, other x2"]
    before = whole({})
    before["rows"]["other"] = {
        "words": ["other"],
        "attempts": [{**attempt(), "seconds": 200.0}, {**attempt(), "seconds": 400.0}],
    }
    assert run.plan(kept, (SIM, OTHER), before) == [f"about 12 minutes on a quiet machine{ending}sim x2, other x2"]
    before["rows"]["other"]["words"] = ["other", "--more"]  # another line took that long
    assert run.plan(kept, (SIM, OTHER), before) == [f"about 3 minutes on a quiet machine{ending}sim x2, other x2"]
    calls = iter([{"result": {}}, {"result": {}}, {"result": {}}, {"failed": "no"}])
    measured(path, kept, lambda row: next(calls))
    assert run.plan(kept, (SIM, OTHER), None) == [f"about 0 minutes on a quiet machine{ending}other"]


def test_the_short_form_has_lines_of_the_whole_and_ends_in_fourteen_minutes() -> None:
    rows = {row.name: row for row in ROWS}
    assert len(short()) > 3
    for row in short():
        assert (row.words, row.figures) == (rows[row.name].words, rows[row.name].figures)
        assert row.repeats == 2, "once has no noise"
    assert sum(row.expected_s * row.repeats for row in short()) < 14 * 60


def test_lines_on_a_gpu_are_those_of_the_whole_once(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row.name: row for row in ROWS}
    assert [row.name for row in on_gpu()] == [name for name in rows if "GPU" in name]
    for row in on_gpu():
        assert row == replace(rows[row.name], repeats=1)
    with pytest.raises(SystemExit):
        run.main(["--gpu", "--short"])
    assert "not allowed with" in capsys.readouterr().err


def test_a_short_run_has_a_file_of_its_own(tmp_path: Path) -> None:
    whole_run, _ = run.opened(tmp_path, "c", MACHINE, {}, 0.0)
    report.write(whole_run, run.opened(tmp_path, "c", MACHINE, {}, 0.0)[1])
    path, kept = run.opened(tmp_path, "c", MACHINE, {}, 60.0, run.SHORT)
    assert (path.name, kept["rows"]) == ("short-19700101-000100.json", {})
    comparison = compared(whole({"gone": {"x": of(1.0, 1.0)}}), whole({}))
    assert lines(comparison, told_missing=False) == ["same    0 figures, within their noise"]


def test_on_another_machine_nothing_counts_as_worse() -> None:
    before = whole({"a": {"x": of(1.0, 1.0)}}, machine={**MACHINE, "cores": 16})
    comparison = compared(before, whole({"a": {"x": of(9.0, 9.0)}}))
    assert comparison.worse == ()
    assert lines(comparison)[0] == "another machine, so nothing counts as worse: cores=16 then, 2 now"
    assert lines(comparison)[1].startswith("WORSE")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": 2}',
        json.dumps({"format": FORMAT, "machine": MACHINE}),
        json.dumps(whole({"a": {"x": {"better": "lower"}}})),
        json.dumps(whole({"a": {"x": {**of(1.0), "values": []}}})),
        json.dumps(whole({"a": {"x": {**of(1.0), "better": "sideways"}}})),
        json.dumps({**whole({}), "rows": {"a": None}}),
        json.dumps({**whole({}), "rows": {"a": {"attempts": [{"result": {}}], "figures": {}}}}),
        json.dumps({**whole({}), "rows": {"a": {"attempts": [{"result": {}, "yardstick": {"cpu": 0.0}}], "figures": {}}}}),
        json.dumps(whole({"a": {"x": of(1.0)}})).replace("1.0", "NaN"),
        json.dumps({**whole({}), "rows": {"a": {"attempts": [{**attempt(), "at_rest": [{}]}], "figures": {}}}}),
    ],
)
def test_a_damaged_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - JSON's own errors among them
        read(text)


def measured(
    path: Path,
    kept: dict[str, Any],
    case: Callable[[Row], dict[str, Any]],
    rows: tuple[Row, ...] = (SIM, OTHER),
    at_rest: dict[str, float] = QUIET,
) -> list[str]:
    said: list[str] = []
    run.measure(path, kept, rows, case, lambda: {"cpu": 1.0}, said.append, lambda: at_rest)
    return said


def test_a_case_that_fails_loses_no_other_and_is_told(tmp_path: Path) -> None:
    path, kept = run.opened(tmp_path, "c", MACHINE, {}, 0.0)
    said = measured(path, kept, lambda row: {"failed": "exit_code=1\nno"} if row is SIM else {"result": {"share": 1.0}})
    assert said == ["sim: failed: exit_code=1\nno", "other: 1 of 2, 0 s", "other: 2 of 2, 0 s"]
    stored = read(path.read_bytes())
    assert stored["rows"]["sim"]["failed"] == "exit_code=1\nno"
    assert stored["rows"]["other"]["figures"]["share"]["values"] == [1.0, 1.0]
    assert stored["ended"] is not None
    assert [one.name for one in tmp_path.iterdir()] == ["all-19700101-000000.json"]
    assert run.missing(stored, (SIM, OTHER)) == ["sim"]


def test_a_run_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    path, kept = run.opened(tmp_path, "c", MACHINE, {"python": "3"}, 0.0)
    calls: list[str] = []

    def interrupted(row: Row) -> dict[str, Any]:
        calls.append(row.name)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return {"result": {"share": float(len(calls))}}

    with pytest.raises(KeyboardInterrupt):
        measured(path, kept, interrupted)
    assert run.opened(tmp_path, "d", MACHINE, {"python": "3"}, 60.0)[1]["rows"] == {}  # another commit begins anew
    assert run.opened(tmp_path, "c", {**MACHINE, "cores": 4}, {"python": "3"}, 60.0)[1]["rows"] == {}
    again, kept = run.opened(tmp_path, "c", MACHINE, {"python": "3"}, 60.0)
    assert again == path
    measured(again, kept, lambda row: {"result": {"share": 9.0}})
    rows = read(path.read_bytes())["rows"]
    assert rows["sim"]["figures"]["share"]["values"] == [1.0, 2.0]
    assert rows["other"]["figures"]["share"]["values"] == [3.0, 9.0]
    assert run.opened(tmp_path, "c", MACHINE, {"python": "3"}, 60.0)[0] != path  # it is finished


def test_a_line_with_other_words_is_measured_again(tmp_path: Path) -> None:
    path, kept = run.opened(tmp_path, "c", MACHINE, {}, 0.0)
    measured(path, kept, lambda row: {"result": {"share": 1.0}}, (OTHER,))
    measured(path, kept, lambda row: {"result": {"share": 2.0}}, (Row("other", ("other", "--more"), OTHER.figures, 30.0, 2),))
    assert kept["rows"]["other"]["figures"]["share"]["values"] == [2.0, 2.0]


@pytest.mark.parametrize(
    ("program", "limit_s", "expected"),
    [
        ("print('{\"a\": 1}')", 60.0, {"result": {"a": 1}}),
        ("print('nothing')", 60.0, {"failed": "did not print a JSON object: 'nothing\\n'"}),
        ("import sys; sys.exit('no')", 60.0, {"failed": "exit_code=1\nno"}),
        ("import sys; print('needs root', file=sys.stderr); sys.exit(2)", 60.0, {"left_out": "needs root"}),
        ("import sys; print('Usage: x', file=sys.stderr); sys.exit(2)", 60.0, {"failed": "exit_code=2\nUsage: x"}),
        ("import time; time.sleep(60)", 0.3, {"failed": "took longer than 0 s"}),
    ],
)
def test_what_became_of_a_case(program: str, limit_s: float, expected: dict[str, Any]) -> None:
    assert run.ended([sys.executable, "-c", program], limit_s) == expected


#: Ends its child by closing what that reads; the child says how it ended.
IN_ORDER = """
import signal, subprocess, sys, time
child = (
    "import pathlib, signal, sys; said = pathlib.Path(sys.argv[1]);"
    "signal.signal(signal.SIGTERM, lambda *_: (said.write_text('TERM'), sys.exit(1)));"
    "print(flush=True); sys.stdin.read(); said.write_text('in order')"
)
one = subprocess.Popen([sys.executable, "-c", child, sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
one.stdout.readline()
def leave(*_):
    one.stdin.close(); one.wait(); sys.exit(143)
signal.signal(signal.SIGTERM, leave)
while True:
    time.sleep(60)
"""


def test_a_case_that_is_interrupted_ends_its_own_processes_in_its_order(tmp_path: Path) -> None:
    said = tmp_path / "said"
    assert run.ended([sys.executable, "-c", IN_ORDER, str(said)], 5.0) == {"failed": "took longer than 5 s"}
    assert said.read_text() == "in order"


def test_every_case_has_a_line_and_every_line_is_understood() -> None:
    assert {row.words[0] for row in ROWS} == set(bench.list_commands(None))  # type: ignore[arg-type]
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        command = bench.get_command(None, row.words[0])  # type: ignore[arg-type]
        assert command is not None
        command.make_context(row.words[0], [*row.words[1:], "--json"])


def test_the_yardstick_has_a_figure_for_each_part() -> None:
    parts = yardstick.measure()
    assert parts.keys() == {"cpu", "memory", "loopback"}
    assert min(parts.values()) <= yardstick.seconds(parts) <= max(parts.values())


def test_the_last_committed_run_is_the_newest_and_as_it_was_committed(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True, capture_output=True
        )

    git("init")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "README").write_text("")
    git("add", ".")
    git("commit", "-m", "first")
    assert report.last_committed(tmp_path, "benchmarks", ("all-", "short-")) is None
    for name in ("all-20260101-000000.json", "all-20260201-000000.json", "cuda.json", "short-20260401-000000.json"):
        (tmp_path / "benchmarks" / name).write_text(name)
    git("add", ".")
    git("commit", "-m", "runs")
    plain = report.commit(tmp_path)
    (tmp_path / "benchmarks" / "all-20260301-000000.json").write_text("not committed")
    (tmp_path / "benchmarks" / "all-20260201-000000.json").write_text("changed")
    whole, brief = (f"{name}.json" for name in ("all-20260201-000000", "short-20260401-000000"))
    for prefixes, name in ((("all-", "short-"), whole), (("short-", "all-"), brief), (("other-", "short-"), brief)):
        assert report.last_committed(tmp_path, "benchmarks", prefixes) == (f"benchmarks/{name}", name)
    assert len(plain) == 40
    assert report.commit(tmp_path).startswith(f"{plain}+")


def test_a_report_names_machine_and_versions() -> None:
    assert report.machine()["cores"] >= 1
    assert {"python", "mpca", "numpy"} <= report.versions().keys()
