"""Reports and the page of `mpca watch` in a real browser, as wide as a desk's screen and as a phone's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mpca.report import write_report
from mpca.report.several import write_several
from tests.browser.devtools import Browser, Page, browser
from tests.report.synthetic import KILLED_AT, synthetic_records, write_run
from tests.report.test_watch import command

pytestmark = pytest.mark.browser

EVIL = "</script><img src=x onerror=\"document.title='taken'\"><b>&amp;'"
TRACEBACK = f'Traceback (most recent call last):\n  File "train.py", line 7, in train\n    fail({EVIL})\nValueError: {EVIL}\n'
PLOTS = "document.querySelectorAll('.uplot').length"
WIDTHS = pytest.mark.parametrize("width", [1280, 390])


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as one:
        yield one


@contextmanager
def opened(chromium: Browser, url: str | Path, width: int) -> Iterator[Page]:
    """The page, which must show no error and not scroll sideways, nor run what is in a name."""
    page = chromium.open(url.as_uri() if isinstance(url, Path) else url, width)
    try:
        yield page
        chromium.listen(0.1)
        assert page.errors == []
        assert page.value("document.documentElement.scrollWidth") <= width
        assert page.value("document.title").startswith("mpca: ")
        assert page.value("document.images.length") == 0
    finally:
        page.close()


def logged(name: str = "loss", until: int = 26) -> list[dict[str, Any]]:
    line = {"kind": "metrics", "incarnation": 0}
    return [
        {**line, "t": float(t), "agent": agent, "steps": 60 * t, "metrics": {name: 9.0 / t + agent}}
        for t in range(7, until)
        for agent in range(4)
    ]


def run_of(folder: Path, *more: dict[str, Any], end: dict[str, Any] | None = None, **attempt: Any) -> Path:
    first, *records, last = synthetic_records()
    begin = {"kind": "begin", "t": 6.0, "agents": 4, "trained": 0.0}
    between = sorted([*records, begin, *more], key=lambda one: one["t"])
    return write_run(folder, [first | attempt, *between, last | (end or {})])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(run_of(tmp_path_factory.mktemp("finished") / "run", *logged(), *logged(EVIL), name=EVIL))


def legend(page: Page, chart: int) -> list[str]:
    """The values that a chart's legend shows: the time, then its lines."""
    return list(page.value(f"[...{plot(chart)}.querySelectorAll('.u-value')].map((one) => one.innerText)"))


def plot(chart: int) -> str:
    return f"document.querySelectorAll('.uplot')[{chart}]"


def place(page: Page, chart: int, share: float) -> tuple[float, float]:
    """The middle of a chart's height, and a share of its width, in the window."""
    page.value(f"{plot(chart)}.scrollIntoView({{block: 'center'}})")
    box = page.value(f"{plot(chart)}.querySelector('.u-over').getBoundingClientRect().toJSON()")
    return box["left"] + share * box["width"], box["top"] + box["height"] / 2


def mark(page: Page, chart: int) -> float:
    """Where the chart's red mark is, as a share of its width."""
    left = page.value(f"parseFloat({plot(chart)}.querySelector('.mark').style.left)")
    return float(left / page.value(f"{plot(chart)}.querySelector('.u-over').clientWidth"))


@WIDTHS
def test_a_report_shows_learning_first_and_the_engine_when_it_is_opened(chromium: Browser, finished: Path, width: int) -> None:
    with opened(chromium, finished, width) as page:
        page.wait(f"{PLOTS} === 3")
        heads = page.value("[...document.querySelectorAll('main > section h2')].map((one) => one.textContent)")
        assert heads == ["Error over time", "loss", EVIL, "Agents lost and replaced"]
        assert page.value("document.querySelector('h1').textContent") == EVIL
        assert page.value("document.querySelectorAll('main > section figure svg').length") == 0, "drawn with uPlot instead"
        box = page.value("document.querySelector('.uplot canvas').getBoundingClientRect().toJSON()")
        assert box["width"] > 0.75 * min(width, 1060)
        assert box["x"] >= 0
        assert page.value("document.querySelector('details').open") is False
        page.value("document.querySelector('summary').click()")
        page.wait(f"{PLOTS} === document.querySelectorAll('figure.chart').length")
        assert page.value(PLOTS) == 5


@WIDTHS
def test_tables_break_no_words_and_scroll_by_themselves(chromium: Browser, finished: Path, width: int) -> None:
    with opened(chromium, finished, width) as page:
        page.value("document.querySelector('summary').click()")
        broken = page.value(
            """[...document.querySelectorAll('.scroll td, .scroll th')].map((cell) => cell.firstChild).filter((text) => text)
              .flatMap((text) =>
              [...text.data.matchAll(/\\S+/g)].filter((word) => {
                const range = document.createRange();
                range.setStart(text, word.index);
                range.setEnd(text, word.index + word[0].length);
                return new Set([...range.getClientRects()].map((one) => one.top)).size > 1;
              }).map((word) => word[0]))"""
        )
        assert broken == []
        assert page.value("document.querySelectorAll('td').length") > 50
        wide = page.value(
            "[...document.querySelectorAll('table')].some((one) => one.offsetWidth > one.parentElement.clientWidth)"
        )
        assert wide == (width == 390)


def test_the_cursor_reads_all_lines_and_a_drag_zooms_all_charts_over_time(chromium: Browser, finished: Path) -> None:
    with opened(chromium, finished, 1280) as page:
        page.wait(f"{PLOTS} === 3")
        time, error = legend(page, 0)
        assert (time, error) == ("last", "3.4152 %")
        page.mouse("Moved", *place(page, 1, 0.5))
        time, *values = legend(page, 1)
        assert time.endswith(" s")
        at = float(time[:-2]) + 6
        assert float(values[0]) == pytest.approx(9 / at, rel=0.2), "agent 0, at the nearest of its times"
        assert legend(page, 2)[0] == time, "charts over time share the cursor"
        before = mark(page, 0)
        assert before == pytest.approx((KILLED_AT - 6) / 20, abs=0.02), "seconds count from the zero of max_time"
        for kind, share in (("Moved", 0.1), ("Pressed", 0.1), ("Moved", 0.2), ("Moved", 0.3), ("Released", 0.3)):
            page.mouse(kind, *place(page, 1, share), held=kind == "Moved" and share > 0.1)
        page.wait("!document.querySelector('button.whole').hidden")
        assert mark(page, 0) == pytest.approx((before - 0.1) / 0.2, abs=0.05)
        page.mouse("Moved", *place(page, 0, mark(page, 0)))
        assert page.value("document.querySelector('figure .said').textContent") == "agent 2 lost at 3.3 s: killed by signal 9"
        page.value("document.querySelector('button.whole').click()")
        page.wait("document.querySelector('button.whole').hidden")
        assert mark(page, 0) == pytest.approx(before)


def test_a_chart_that_is_unfolded_is_zoomed_as_those_above_it(chromium: Browser, finished: Path) -> None:
    with opened(chromium, finished, 1280) as page:
        page.wait(f"{PLOTS} === 3")
        for kind, share in (("Moved", 0.1), ("Pressed", 0.1), ("Moved", 0.2), ("Moved", 0.3), ("Released", 0.3)):
            page.mouse(kind, *place(page, 1, share), held=kind == "Moved" and share > 0.1)
        page.wait("!document.querySelector('button.whole').hidden")
        page.value("document.querySelector('summary').click()")
        page.wait(f"{PLOTS} === 5")
        hidden = "[...document.querySelectorAll('details button.whole')].map((one) => one.hidden).join()"
        page.wait(f"{hidden} === 'false,true'")  # bytes over time, and interruptions by cycle
        page.value("document.querySelector('details button.whole').click()")
        page.wait("[...document.querySelectorAll('button.whole')].every((one) => one.hidden)")


def test_a_finger_that_moves_sideways_zooms(chromium: Browser, finished: Path) -> None:
    with opened(chromium, finished, 390) as page:
        page.wait(f"{PLOTS} === 3")
        page.touch("Start", place(page, 0, 0.1))
        for share in (0.2, 0.3, 0.5):
            page.touch("Move", place(page, 0, share))
        page.touch("End")
        page.wait("!document.querySelector('button.whole').hidden")


@WIDTHS
def test_a_failed_run_leads_with_its_cause_and_the_traceback(chromium: Browser, tmp_path: Path, width: int) -> None:
    end = {"status": "failed", "reason": f"agent 1 raised ValueError: {EVIL}\n{TRACEBACK}"}
    report = write_report(run_of(tmp_path / "run", *logged(), end=end))
    with opened(chromium, report, width) as page:
        page.wait(f"{PLOTS} === 2")
        assert page.value("document.querySelector('main').firstElementChild.querySelector('.cause p').textContent") == (
            f"agent 1 raised ValueError: {EVIL}"
        )
        assert page.value("document.querySelector('.cause pre').textContent") == TRACEBACK.rstrip("\n")
        assert page.value("[...document.querySelectorAll('.cause pre b')].map((one) => one.textContent)") == [
            "Traceback (most recent call last):",
            f"ValueError: {EVIL}",
        ]
        assert page.value("document.querySelector('.cause').getBoundingClientRect().top") < 160
        assert page.value("document.querySelector('.badge.bad').textContent") == "failed"


@WIDTHS
def test_several_runs_are_side_by_side(chromium: Browser, tmp_path: Path, width: int) -> None:
    runs = [run_of(tmp_path / f"run-{n}", *logged(until=20 + n), seed=n) for n in range(3)]
    runs[1] = runs[1].rename(tmp_path / EVIL.replace("/", "_"))
    write_several(runs, page_file := tmp_path / "runs.html")
    with opened(chromium, page_file, width) as page:
        page.wait(f"{PLOTS} === 3")
        names = page.value("[...document.querySelectorAll('td:first-child')].map((one) => one.textContent)")
        assert names == [one.name for one in runs]
        labels = page.value("[...document.querySelector('.uplot').querySelectorAll('.u-label')].map((one) => one.textContent)")
        assert labels == ["time", *names]


@WIDTHS
def test_the_page_of_a_run_that_goes_on_changes_without_a_reload(chromium: Browser, tmp_path: Path, width: int) -> None:
    lines = run_of(tmp_path / "old", *logged()).joinpath("records.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    run_dir = tmp_path / "run"
    with command(str(run_dir)) as process:
        assert process.stdout is not None
        with opened(chromium, process.stdout.readline().strip(), width) as page:
            page.value("window.opened_once = true")
            status = "document.querySelector('[role=status]').textContent"
            page.wait(f"{status}.startsWith('waiting: there is no records.jsonl')")
            run_dir.mkdir()
            with (run_dir / "records.jsonl").open("a", encoding="utf-8") as file:
                file.writelines([*lines[:60], lines[60][:30]])
                file.flush()
                page.wait(f"{PLOTS} === 2")
                assert page.value("document.querySelector('.badge').textContent") == "running"
                assert page.value(status) == f"follows {run_dir}"
                page.value(f"{plot(1)}.kept = true")
                before = legend(page, 1)
                file.writelines([lines[60][30:], *lines[61:-1]])
                file.flush()
                page.wait(
                    "document.querySelectorAll('.uplot')[1].querySelectorAll('.u-value')[1].innerText !== "
                    + json.dumps(before[1])
                )
                assert page.value("document.querySelectorAll('.uplot')[1].kept") is True, "the chart stays, with new numbers"
                file.write(lines[-1])
            page.wait("document.querySelector('.badge').textContent === 'reached'")
            assert page.value(status).startswith("the run has ended; its report: ")
            assert page.value("window.opened_once") is True
        assert process.wait(20) == 0


def test_a_chart_that_grew_from_one_point_looks_as_in_a_page_that_is_opened_now(chromium: Browser, tmp_path: Path) -> None:
    run_dir = run_of(tmp_path / "run")
    records = run_dir / "records.jsonl"
    lines = [one for one in records.read_text(encoding="utf-8").splitlines(keepends=True) if '"evaluation"' not in one]
    evaluation = {"kind": "evaluation", "t": 20.0, "cycle": 60, "seconds": 0.1, "error": 0.5, "loss": None}
    drawn = "[...document.querySelectorAll('.uplot canvas')].map((one) => one.toDataURL())"
    scrolled = "document.querySelector('.scroll').scrollLeft"
    values = f"[...{plot(0)}.querySelectorAll('.u-value')].map((one) => one.innerText)[1]"
    records.write_text("".join(lines[:6]), encoding="utf-8")
    with records.open("a", encoding="utf-8") as file, command(str(run_dir)) as process:

        def say(*more: dict[str, Any]) -> None:
            file.writelines(json.dumps(one) + "\n" for one in more)
            file.flush()

        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with opened(chromium, address, 390) as page:
            say(*logged(until=8), *logged("lr", until=8))
            page.wait(f"{PLOTS} === 2")
            before = page.value(values)
            page.value(f"{scrolled} = 150")
            say(*logged(until=20)[4:], *logged("lr", until=20)[4:])
            page.wait(f"{values} !== {json.dumps(before)}")
            file.writelines(lines[6:30])  # cycles, by which the table of agents changes
            file.flush()
            page.wait("document.querySelector('.scroll td:nth-child(5)').textContent !== '0'")
            assert page.value(scrolled) == 150, "a table that was scrolled sideways stays so"
            with opened(chromium, address, 390) as other:
                other.wait(f"{PLOTS} === 2")
                now = other.wait(drawn)
            page.wait(f"JSON.stringify({drawn}) === {json.dumps(json.dumps(now, separators=(',', ':')))}")
            page.touch("Start", place(page, 1, 0.2))
            for share in (0.3, 0.4, 0.6):
                page.touch("Move", place(page, 1, share))
            page.touch("End")
            page.wait("!document.querySelectorAll('button.whole')[1].hidden")
            say(evaluation)
            page.wait(f"{PLOTS} === 3")
            page.wait("document.querySelectorAll('button.whole').length === 3")
            assert page.value("document.querySelectorAll('button.whole')[2].hidden") is False, "zoomed, below a new chart"


def test_runs_of_one_colour_are_told_by_dashes_below_the_chart_too(chromium: Browser, tmp_path: Path) -> None:
    runs = [run_of(tmp_path / f"run-{n}", seed=n) for n in range(13)]
    write_several(runs, page_file := tmp_path / "runs.html")
    with opened(chromium, page_file, 1280) as page:
        page.wait(f"{PLOTS} > 0")
        styles = page.value(f"[...{plot(0)}.querySelectorAll('.u-marker')].map((one) => one.style.borderStyle).slice(1)")
        assert styles == [*6 * ["solid"], *6 * ["dashed"], "dotted"]
