"""What the page shows and embeds equals what the records say, whatever became of the run."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from mpca.driver.objectives import Target
from mpca.errors import ConfigError
from mpca.records import from_json
from mpca.report import write_report
from mpca.report.load import gather
from mpca.report.page import running
from mpca.storage.local import LocalStore
from mpca.storage.parts import PartWriter
from tests.report.synthetic import KILLED_AT, synthetic_records, write_run


class Page(HTMLParser):
    """Embedded data, table rows, and the titles and classes of SVG marks."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.embedded = ""
        self.titles: list[str] = []
        self.rows: list[list[str]] = []
        self.bars = 0
        self.addresses: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.data: dict[str, Any] = json.loads(self.embedded)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.addresses += [value or "" for key, value in attrs if key in ("src", "href")]
        self._open.append("data" if attributes.get("id") == "mpca-data" else tag)
        if tag == "rect" and "bar" in (attributes.get("class") or "").split():
            self.bars += 1
        if tag == "tr":
            self.rows.append([])
        if tag == "title":
            self.titles.append("")
        if tag == "td":
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()

    def handle_data(self, text: str) -> None:
        if self._open and self._open[-1] == "data":
            self.embedded += text
        elif self._open and self._open[-1] == "title":
            self.titles[-1] += text
        elif self._open and self._open[-1] == "td":
            self.rows[-1][-1] += text


def page_of(run_dir: Path) -> Page:
    # void elements would unbalance the parser's stack
    text = re.sub(r"<meta[^>]*>", "", write_report(run_dir).read_text(encoding="utf-8"))
    return Page(text)


def test_curve_bars_and_lost_agents_equal_the_records(tmp_path: Path) -> None:
    records = synthetic_records()
    page = page_of(write_run(tmp_path / "run", records))

    evaluations = [r for r in records if r["kind"] == "evaluation"]
    assert [(p["t"], p["cycle"], p["error"]) for p in page.data["curve"]] == [
        (r["t"], r["cycle"], r["error"]) for r in evaluations
    ]
    stages = [
        (r["cycle"], stage, spec["shard"], spec["start"], spec["end"])
        for r in records
        if r["kind"] == "cycle"
        for stage, spec in r["stages"].items()
    ]
    assert [(b["cycle"], b["stage"], b["shard"], b["start"], b["end"]) for b in page.data["bars"]] == stages
    assert page.bars == len(stages), "every stage is drawn"
    lost = [r for r in records if r["kind"] == "agent" and r["event"] == "lost"]
    assert [(x["agent"], x["incarnation"], x["seconds"], x["reason"]) for x in page.data["losses"]] == [
        (r["index"], r["incarnation"], r["t"], r["reason"]) for r in lost
    ]


def test_a_lost_agent_is_in_the_table_with_its_successor(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "run", synthetic_records()))
    row = next(row for row in page.rows if "killed by signal 9" in row)
    assert row[0] == f"{KILLED_AT} s"
    assert row[1] == "2 (incarnation 0)"
    assert row[-1] == "after 2.4s on executor 5"
    assert any("agent 2 lost at 9.3 s" in title for title in page.titles)


def test_tau_and_bytes_equal_the_records(tmp_path: Path) -> None:
    records = synthetic_records(cycles=20)
    page = page_of(write_run(tmp_path / "run", records))
    cycles = [r for r in records if r["kind"] == "cycle"]
    taus = {(c["cycle"], c["agent"]): c["tau"] for c in page.data["contributions"] if c["tau"] is not None}
    assert taus == {(r["cycle"], int(a)): g["tau"] for r in cycles for a, g in r["contributors"].items()}
    out = {(c["cycle"], c["agent"]): c["reason"] for c in page.data["contributions"] if c["tau"] is None}
    assert out == {(r["cycle"], int(a)): why for r in cycles for a, why in r["left_out"].items()}
    assert [b["driver_in"] for b in page.data["bytes"]] == [r["bytes"]["driver_in"] for r in cycles]


def wire_rows(page: Page) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in page.rows if row and row[0].startswith(("exchange, ", "data set, "))}


def test_exchange_and_data_share_the_wire_by_what_the_records_say(tmp_path: Path) -> None:
    read = {"data_read": 500_000, "data_remote": 155_000}
    page = page_of(write_run(tmp_path / "run", synthetic_records(cycles=41, data=read)))
    seconds = page.data["wire"].pop("seconds")
    assert seconds == pytest.approx(40 * 0.21)
    assert page.data["wire"] == {"exchange": 40 * 310_000, "data_remote": 40 * 155_000, "data_read": 40 * 500_000}
    rows = wire_rows(page)
    assert [row[-1] for row in rows.values()] == ["66.7 %", "33.3 %", "–"], "two to one; what is read at home shares nothing"
    assert rows["data set, from other hosts"][1] == f"{155_000 / 0.21 / 1024:.1f} KiB/s"
    assert {row["data_read"] for row in page.data["bytes"]} == {500_000}


def test_data_of_a_local_disk_take_nothing_of_the_wire(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "run", synthetic_records(cycles=5)))  # as an older version wrote it, too
    assert {name: row[-1] for name, row in wire_rows(page).items()} == {
        "exchange, into executors": "100.0 %",
        "data set, from other hosts": "0.0 %",
        "data set, from the agents' own hosts": "–",
    }


def test_a_run_cut_off_in_the_middle_of_a_line_still_has_a_page(tmp_path: Path) -> None:
    records = [r for r in synthetic_records() if r["kind"] != "end"]
    page = page_of(write_run(tmp_path / "run", records, tail='{"kind": "cycle", "t": 25.1, "cyc'))
    assert len(page.data["curve"]) == 12
    assert "not ended" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_a_run_that_failed_before_its_first_cycle_has_a_page(tmp_path: Path) -> None:
    records = [
        {**synthetic_records()[0], "name": "early"},
        {"kind": "end", "t": 3.0, "status": "failed", "reason": "agent 1 exited with code 3 <before> Hello"},
    ]
    summary = {"status": "failed", "reason": "agent 1 exited", "final_error": None, "best_error": None, "seconds": 3.0}
    page = page_of(write_run(tmp_path / "run", records, summary))
    assert page.data["end"]["reason"] == "agent 1 exited with code 3 <before> Hello"
    assert page.data["bars"] == []


def test_the_page_needs_no_network_and_runs_no_script_but_its_own(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", synthetic_records())
    page = page_of(run_dir)
    text = (run_dir / "report.html").read_text(encoding="utf-8")
    assert page.addresses == []
    assert "url(" not in text
    assert "@import" not in text
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL)
    assert [kind for kind, _ in scripts if kind != ' type="application/json"'] == [
        ' type="application/json" id="mpca-data"',
        "",
    ]
    style = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    by_hash = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in (scripts[-1][1], *style)]
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{by_hash[0]}'; style-src 'sha256-{by_hash[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert "style=" not in text, "the policy would not apply it"
    assert len(by_hash) == 2
    assert sum(map(len, scripts[-1])) < 80_000, "each report carries it"


def test_loss_and_metrics_come_first_and_the_engine_is_folded(tmp_path: Path) -> None:
    records = [*synthetic_records()[:-1], metrics(9.0, 0, accuracy=0.5), metrics(9.0, 1, accuracy=0.5)]
    text = write_report(write_run(tmp_path / "run", records)).read_text(encoding="utf-8")
    heads = re.findall(r"<h2>(.*?)</h2>|<(details)>", text)
    assert [one or two for one, two in heads][:6] == [
        "Error over time", "accuracy", "loss", "Agents lost and replaced", "details", "Cycles: reduce, prepare, broadcast",
    ]  # fmt: skip


def test_a_failed_run_leads_with_the_cause_and_its_traceback(tmp_path: Path) -> None:
    place = '  File "/home/me/train.py", line 31, in <listcomp>'
    reason = f"agent 1 raised ValueError: <x>\nTraceback (most recent call last):\n{place}\n    f(x)\nValueError: <x>"
    records = [*synthetic_records()[:-1], {"kind": "end", "t": 26.0, "status": "failed", "reason": reason}]
    text = write_report(write_run(tmp_path / "run", records)).read_text(encoding="utf-8")
    lines = re.findall(r'<div class="cause"><p>(.*?)</p><pre>(.*?)</pre></div>', text, re.DOTALL)
    assert lines == [
        (
            "agent 1 raised ValueError: &lt;x&gt;",
            "<b>Traceback (most recent call last):</b>\n"
            f'<span class="place">{escape(place)}</span>\n<span class="code">    f(x)</span>\n<b>ValueError: &lt;x&gt;</b>',
        )
    ]
    assert text.index("cause") < text.index('class="figures"')


def test_text_from_a_run_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    records = synthetic_records(cycles=3)
    records[0]["name"] = "</script><script>alert(1)</script>"
    text = write_report(write_run(tmp_path / "run", records)).read_text(encoding="utf-8")
    assert "<script>alert" not in text


def test_a_name_that_is_no_utf8_is_shown_escaped(tmp_path: Path) -> None:
    end = {"kind": "end", "t": 26.0, "status": "failed", "reason": "agent 1 raised FileNotFoundError: 'caf\udce9.csv'"}
    run_dir = write_run(tmp_path / "run", [*synthetic_records(cycles=3)[:-1], end])
    assert page_of(run_dir).data["end"]["reason"] == end["reason"]
    assert "<p>agent 1 raised FileNotFoundError: &#x27;caf\\udce9.csv&#x27;</p>" in (run_dir / "report.html").read_text(
        encoding="utf-8"
    )


def test_pages_of_trackers_can_be_opened_and_no_other_url(tmp_path: Path) -> None:
    urls = {"wandb": 'https://there/a?b=1&c="><b>', "mlflow": "javascript:alert(1)", "tensorboard": ""}
    told = [{"kind": "tracker", "t": 7.0, "tracker": one, "run": "0a1b", "url": url} for one, url in urls.items()]
    first = {**told[0], "url": "https://of-an-earlier-attempt"}
    run_dir = write_run(tmp_path / "run", [*synthetic_records(), first, *told])
    assert page_of(run_dir).addresses == [urls["wandb"]]
    text = (run_dir / "report.html").read_text(encoding="utf-8")
    shown = "https://there/a?b=1&amp;c=&quot;&gt;&lt;b&gt;"
    assert f'<p class="note">wandb: <a href="{shown}" rel="noreferrer">{shown}</a></p>' in text
    assert '<p class="note">mlflow: javascript:alert(1)</p>' in text
    assert "tensorboard" not in text


def test_pauses_of_agents_and_of_the_run_equal_the_records(tmp_path: Path) -> None:
    records = synthetic_records(cycles=20)
    page = page_of(write_run(tmp_path / "run", records))
    expected = {
        (r["cycle"], int(agent)): end - start
        for r in records
        if r["kind"] == "cycle"
        for agent, (start, end) in r["pauses"].items()
    }
    assert {(c["cycle"], c["agent"]): c["pause_s"] for c in page.data["contributions"] if c["tau"] is not None} == expected
    assert [(p["start"], p["end"]) for p in page.data["pauses"]] == [(17.0, 18.5)], "one pause, though it was written twice"


def test_the_end_of_an_earlier_attempt_is_not_the_end_of_the_run(tmp_path: Path) -> None:
    records = synthetic_records(cycles=5)
    again = {**records[0], "t": 30.0, "attempt": 2}
    page = page_of(write_run(tmp_path / "run", [*records, again]))
    assert page.data["end"] is None
    assert [one["attempt"] for one in page.data["attempts"]] == [1, 2]


def test_the_summary_of_an_earlier_attempt_is_not_that_of_the_run(tmp_path: Path) -> None:
    records = synthetic_records(cycles=5)
    records[-1] = {"kind": "end", "t": 26.0, "status": "failed", "reason": "agent 1 died"}
    summary = {"status": "failed", "reason": "agent 1 died", "final_error": 0.75, "attempts": 1}
    run_dir = write_run(tmp_path / "ended", records, summary)
    page_of(run_dir)
    assert '<span class="badge bad">failed</span>' in (run_dir / "report.html").read_text(encoding="utf-8")
    again = {**records[0], "t": 30.0, "attempt": 2}
    run_dir = write_run(tmp_path / "goes on", [*records, again], summary)
    assert page_of(run_dir).data["summary"] == {}
    text = (run_dir / "report.html").read_text(encoding="utf-8")
    assert '<span class="badge ">not ended</span>' in text
    assert "agent 1 died" not in text
    assert "75.00 %" not in text


def test_a_pause_in_which_an_attempt_was_killed_does_not_go_on_in_the_next_one(tmp_path: Path) -> None:
    first, *records = [one for one in synthetic_records(cycles=5)[:-1] if one["t"] < 18.0]
    begin = {"kind": "begin", "t": 6.0, "agents": 4, "trained": 0.0}
    again = [
        {**first, "t": 20.0, "attempt": 2},
        {"kind": "begin", "t": 25.0, "agents": 4, "trained": 12.0},
        {"kind": "evaluation", "t": 65.0, "cycle": 90, "seconds": 0.1, "error": 0.5, "loss": 1.0},
    ]
    assert records[-1]["t"] == 17.0
    assert records[-1]["end"] is None
    page = page_of(write_run(tmp_path / "run", [first, begin, *records, *again]))
    assert [(one["start"], one["end"]) for one in page.data["pauses"]] == [(11.0, 11.0)]
    page = page_of(write_run(tmp_path / "alone", [first, begin, *records]))
    assert [(one["start"], one["end"]) for one in page.data["pauses"]] == [(11.0, None)], "it may still go on"


def test_a_run_that_is_paused_while_it_is_watched_says_so(tmp_path: Path) -> None:
    records = [one for one in synthetic_records(cycles=5) if one["t"] < 20.0]
    begin = {"kind": "begin", "t": 6.0, "agents": 4, "trained": 0.0}

    def said(*told: dict[str, Any]) -> str:
        return running(gather([from_json(one) for one in told], "run"))[0]

    at = next(n for n, one in enumerate(records) if one["kind"] == "pause")
    assert '<p class="reason">starting</p>' in said(records[0])
    assert '<p class="reason">training</p>' in said(records[0], begin, *records[1:at])
    assert '<p class="reason">paused: 2/4 agents, min_agents=3</p>' in said(records[0], begin, *records[1 : at + 1])
    assert '<p class="reason">training</p>' in said(records[0], begin, *records[1:]), "the pause has ended"


def test_times_are_seconds_of_training_over_all_attempts(tmp_path: Path) -> None:
    """What the start took is not in them, and a second attempt goes on from what the first had trained."""
    records = synthetic_records(cycles=10)
    begin = {"kind": "begin", "t": 6.25, "agents": 4, "trained": 0.0}
    again = [
        {**records[0], "t": 100.0, "attempt": 2},
        {"kind": "begin", "t": 130.0, "agents": 4, "trained": 7.5},
        {"kind": "pause", "t": 140.0, "start": 132.0, "end": 140.0, "reason": "1 of 4 agents alive"},
        {"kind": "evaluation", "t": 150.0, "cycle": 12, "seconds": 0.1, "error": 0.5, "loss": 1.0},
    ]
    page = page_of(write_run(tmp_path / "run", [records[0], begin, *records[1:], *again]))
    plain = page_of(write_run(tmp_path / "plain", records))
    assert page.data["bars"] == [
        {**one, "start": pytest.approx(one["start"] - 6.25), "end": pytest.approx(one["end"] - 6.25)}
        for one in plain.data["bars"]
    ]
    assert [one["t"] for one in page.data["curve"]] == pytest.approx([*(one["t"] - 6.25 for one in plain.data["curve"]), 27.5])
    assert (page.data["pauses"][-1]["start"], page.data["pauses"][-1]["end"]) == (9.5, 17.5)


def test_lines_go_from_left_to_right_though_an_attempt_repeats_what_came_after_its_backup(tmp_path: Path) -> None:
    records = synthetic_records(cycles=60)
    begin = {"kind": "begin", "t": 6.0, "agents": 4, "trained": 0.0}
    again = [{**records[0], "t": 20.0, "attempt": 2}, {"kind": "begin", "t": 22.0, "agents": 4, "trained": 9.5}]
    again += [{**one, "t": one["t"] + 6.55} for one in records if one["kind"] == "cycle"][45:]
    again += [
        {"kind": "evaluation", "t": 23.0 + n, "cycle": n, "seconds": 0.1, "error": 0.4 - n / 100, "loss": 1.0} for n in range(9)
    ]
    text = write_report(write_run(tmp_path / "run", [records[0], begin, *records[1:], *again])).read_text(encoding="utf-8")
    charts = [json.loads(one) for one in re.findall(r'<script type="application/json">(.*?)</script>', text)]
    error = next(one for one in charts if one["label"].startswith("Error of"))["lines"][0]
    assert error["x"] == sorted(error["x"])
    assert len(error["x"]) == 12 + 9
    assert error["y"][error["x"].index(10.5)] == 0.4, "each with its own value"
    (points,) = re.findall(r'class="line s0" points="([^"]*)"', text[: text.index("<h2>loss")])
    at = [float(point.split(",")[0]) for point in points.split()]
    assert at == sorted(at)
    dots = re.findall(r'<circle class="dot s0" cx="([^"]*)"[^>]*><title>([^<]*)</title>', text)
    assert [float(x) for x, _ in dots] == at
    assert dots[error["x"].index(10.5)][1] == "40.00 % at 10.5 s, cycle 0"
    moved = next(one for one in charts if one["label"].startswith("Bytes moved"))["lines"]
    assert [one["y"] for one in moved] == [sorted(one["y"]) for one in moved], "bytes add up"


def test_a_run_of_exchanges_in_place_of_cycles_has_a_page_with_a_row_by_agent(tmp_path: Path) -> None:
    records = [one for one in synthetic_records() if one["kind"] != "cycle"]
    said = {"shard": 0, "incarnation": 0, "tau": 10, "version": 1, "share": 0.5, "served": 0.02}
    for n in range(6):
        more = {
            "agent": n % 2,
            "number": n // 2 + 1,
            "staleness": n,
            "wait": 0.1 * n,
            "bytes": {"driver_in": 1024, "driver_out": 1024},
        }
        reason = {"reason": "not finite"} if n == 5 else {}
        records.insert(-1, {"kind": "exchange", "t": 20.0 + n, "cycle": n, **said, **more, **reason})
    page = page_of(write_run(tmp_path / "run", records))
    assert [row for row in page.rows if len(row) == 8 and row[0] in "01"] == [
        ["0", "3", "0", "10.0", "2.0", "200 ms", "20 ms", "6.0 KiB"],
        ["1", "2", "1", "10.0", "3.0", "300 ms", "20 ms", "6.0 KiB"],
    ]
    assert [row[0] for row in page.rows if len(row) == 4] == list("0123"), "where each agent was, and no cycles of it"
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "<b>5</b><span>exchanges</span>" in text
    assert " s, exchange " in text, "a dot of the curve"
    assert re.search(r" s, cycle |<th[^>]*>cycle<", text) is None
    assert '<span class="badge good">reached</span>' in text
    assert "No cycle was committed" not in text


def test_a_copy_from_hdfs_of_a_run_that_goes_on_or_was_killed_has_a_page(tmp_path: Path) -> None:
    lines = [json.dumps(one).encode() + b"\n" for one in synthetic_records(cycles=20)]
    records, run_dir = tmp_path / "working copy", tmp_path / "copied"
    records.write_bytes(b"".join(lines[:30]))
    writer = PartWriter(LocalStore(run_dir), records, term=1, start=0)
    writer.flush()
    assert not (run_dir / "records.jsonl").exists()
    page = page_of(run_dir)
    assert [one["cycle"] for one in page.data["bytes"]] == [
        r["cycle"] for r in map(json.loads, lines[:30]) if r["kind"] == "cycle"
    ]
    records.write_bytes(b"".join(lines[:-1]))
    writer.finish()
    assert len(page_of(run_dir).data["bytes"]) == 20
    more = records.read_bytes() + lines[-1]
    records.write_bytes(more)
    PartWriter(LocalStore(run_dir), records, term=2, start=len(more) - len(lines[-1])).flush()
    assert page_of(run_dir).data["end"]["status"] == "reached", "of the next attempt there are parts, behind the file"


def test_a_folder_without_records_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not a run folder: .*no records\.jsonl"):
        write_report(tmp_path)
    (tmp_path / "records").mkdir()
    with pytest.raises(ConfigError, match=r"not a run folder: .*no records\.jsonl"):
        write_report(tmp_path)


@pytest.mark.parametrize(("cycles", "colour"), [(True, "good"), (False, "bad")])
def test_a_limit_that_was_met_without_a_cycle_has_no_good_badge(tmp_path: Path, cycles: bool, colour: str) -> None:
    """As older versions wrote it; now such a run reads failed."""
    records = [one for one in synthetic_records() if cycles or one["kind"] != "cycle"]
    records[-1] = {"kind": "end", "t": 90.0, "status": "max_time", "reason": "5 s of training"}
    page_of(write_run(tmp_path / "run", records))
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f'<span class="badge {colour}">max_time</span>' in page


#: (kind, field, value) of a record that is one but for this; what reads it would raise.
GARBAGE = [
    ("cycle", "stages", {"reduce": {"shard": 0}}),
    ("cycle", "stages", {"reduce": {"shard": 0, "start": "1", "end": 2.0}}),
    ("cycle", "stages", {"elsewhere": {"shard": 0, "start": 1.0, "end": 2.0}}),
    ("cycle", "stages", [1]),
    ("cycle", "contributors", {"0": {}}),
    ("cycle", "contributors", {"0": 3}),
    ("cycle", "contributors", {"zero": {}}),
    ("cycle", "pauses", {"0": [1.0]}),
    ("cycle", "bytes", {"in": {}}),
    ("cycle", "cycle", "7"),
    ("cycle", "shard", True),
    ("evaluation", "error", "0.5"),
    ("agent", "index", [0]),
    ("pause", "start", None),
    ("run", "target_error", {}),
    ("end", "reason", {"a": 1}),
]


@pytest.mark.parametrize(("kind", "name", "value"), GARBAGE)
def test_garbage_within_a_record_is_told_with_its_line(tmp_path: Path, kind: str, name: str, value: object) -> None:
    records = synthetic_records()
    line = next(at for at, one in enumerate(records) if one["kind"] == kind)
    records[line] = {**records[line], name: value}
    run_dir = write_run(tmp_path / "run", records)
    with pytest.raises(ConfigError, match=rf"^damaged run folder: not a record: path=.*, line={line + 1}: "):
        write_report(run_dir)


@pytest.mark.parametrize(
    ("number", "said"),
    [(2, "format 2, this mpca reads 1: use a newer mpca"), (None, "no format, this mpca reads 1: use the mpca that wrote it")],
)
def test_records_of_another_format_are_refused_in_one_sentence(tmp_path: Path, number: int | None, said: str) -> None:
    records = synthetic_records()
    records[0] |= {"format": number, "shards": "what a later version makes of it"}
    run_dir = write_run(tmp_path / "run", records)
    with pytest.raises(ConfigError) as refused:
        write_report(run_dir)
    assert str(refused.value) == f"{run_dir}: the run's records.jsonl has {said}"


def test_a_line_that_is_no_map_is_told_and_garbage_in_the_summary_is_passed_over(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", synthetic_records(), {"status": "reached", "seconds": "long", "final_error": [1]})
    page_of(run_dir)
    with (run_dir / "records.jsonl").open("a") as file:
        file.write("[[[]]]\n")
    with pytest.raises(ConfigError, match="it is not a map"):
        write_report(run_dir)


def test_the_ends_of_the_evaluator_are_marks_of_the_curve(tmp_path: Path) -> None:
    ends = [
        {"kind": "evaluator", "t": 4.0 + n, "event": event, "cycle": 3, "reason": "exit_code=-9 (SIGKILL)"}
        for n, event in enumerate(("restarted", "stopped"))
    ]
    records = synthetic_records()
    page = page_of(write_run(tmp_path / "run", [*records[:-1], *ends, records[-1]]))
    assert "evaluator restarted at 4.0 s: exit_code=-9 (SIGKILL)" in page.titles
    assert "evaluator stopped at 5.0 s: exit_code=-9 (SIGKILL)" in page.titles
    assert [one["event"] for one in page.data["evaluators"]] == ["restarted", "stopped"]
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "2 times the evaluator&#x27;s process ended; after the last time nothing was evaluated any more." in text


def test_the_ends_of_the_evaluator_and_pauses_are_in_charts_of_runs_without_an_error_too(tmp_path: Path) -> None:
    ended = {"kind": "evaluator", "t": 5.0, "event": "stopped", "cycle": 3, "reason": "exit_code=-9 (SIGKILL)"}
    logged = [metrics(7.0, 0, loss=1.0, lr=0.5)]
    records = [one for one in synthetic_records() if one["kind"] != "evaluation"]
    page = page_of(write_run(tmp_path / "run", [*records[:-1], ended, *logged, records[-1]]))
    assert page.titles.count("evaluator stopped at 5.0 s: exit_code=-9 (SIGKILL)") == 2, "a chart a metric"
    assert page.titles.count("paused: 2/4 agents, min_agents=3") == 2
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert text.count("after the last time nothing was evaluated any more.") == 1
    assert text.index("after the last time nothing was evaluated") < text.index("<h2>lr</h2>")
    page = page_of(write_run(tmp_path / "silent", [*records[:-1], ended, records[-1]]))
    text = (tmp_path / "silent" / "report.html").read_text(encoding="utf-8")
    assert "No evaluation was recorded, and 1 times the evaluator&#x27;s process ended; after the last time" in text


def metrics(t: float, agent: int, **values: float | None) -> dict[str, Any]:
    return {"kind": "metrics", "t": t, "agent": agent, "incarnation": 0, "steps": int(10 * t), "metrics": values}


def test_what_agents_log_is_a_chart_a_metric_with_the_mean_and_evaluations_beside_it(tmp_path: Path) -> None:
    begin = {"kind": "begin", "t": 6.0, "agents": 4, "trained": 0.0}
    records = [*synthetic_records(), begin]
    for n in range(10):
        records += [metrics(7.25 + n, agent, loss=float(4 - n / 4 + agent), lr=-0.5) for agent in range(3)]
    records += [metrics(9.5, 3, loss=None), metrics(9.5, 2, images=8.0)]
    page = page_of(write_run(tmp_path / "run", sorted(records, key=lambda one: one["t"])))
    loss, lr, images = page.data["metrics"]
    assert [one["name"] for one in (loss, lr, images)] == ["loss", "lr", "images"]
    assert loss["agents"]["2"] == [[1.25 + n, 6 - n / 4] for n in range(10)], "times are seconds of training"
    assert sorted(loss["agents"]) == ["0", "1", "2"], "a number that is not finite is a gap"
    assert loss["mean"][0] == [1.25, 5.0]
    assert [value for _, value in loss["mean"]] == sorted((value for _, value in loss["mean"]), reverse=True)
    evaluations = [[one["t"] - 6.0, one["loss"]] for one in records if one["kind"] == "evaluation"]
    assert (loss["evaluations"], lr["evaluations"]) == (evaluations, [])
    assert list(images["agents"]) == ["2"]
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert [text.count(f"<h2>{name}</h2>") for name in ("loss", "lr", "images")] == [1, 1, 1]
    assert (text.count('"line thin s0"'), text.count('"line thick s0"')) == (6, 3)
    assert "joint model: 3.66 at 1.0 s" in page.titles
    heights = re.findall(r'"line t\w+ s0" points="([^"]*)"', text)
    assert all(0 <= float(point.split(",")[1]) <= 240 for line in heights for point in line.split()), "also below zero"


def test_a_metric_of_a_long_run_is_drawn_thinned_and_a_flood_of_them_in_part(tmp_path: Path) -> None:
    long = [metrics(7.0 + n / 10, 0, loss=n % 2) for n in range(20_000)]
    page = page_of(write_run(tmp_path / "long", [*synthetic_records()[:-1], *long]))
    (loss,) = page.data["metrics"]
    assert 250 < len(loss["agents"]["0"]) <= 302
    assert {round(value, 1) for _, value in loss["mean"]} == {0.5}
    flood = metrics(7.0, 0, **{f"<m{n}>": float(n) for n in range(30)})
    page = page_of(write_run(tmp_path / "flood", [*synthetic_records()[:-1], flood]))
    text = (tmp_path / "flood" / "report.html").read_text(encoding="utf-8")
    assert (len(page.data["metrics"]), text.count("<h2>&lt;m")) == (31, 24)
    assert "Not drawn; they are in records.jsonl: &lt;m24&gt;, " in text


def test_the_page_of_a_run_of_many_cycles_agents_and_losses_can_still_be_opened(tmp_path: Path) -> None:
    records = synthetic_records(cycles=3000)[:-1]
    records += [{**records[1], "t": 30.0 + n, "event": "lost", "reason": f"killed {n}"} for n in range(1500)]
    records += [metrics(30.0 + n, agent, loss=float(agent)) for n in range(20) for agent in range(400)]
    errors = [0.5 - 0.0001 * n for n in range(2000)]
    errors[777], errors[1234] = 0.9, 0.001
    records += [
        {"kind": "evaluation", "t": 30.0 + n, "cycle": n, "seconds": 0.1, "error": one, "loss": None}
        for n, one in enumerate(errors)
    ]
    page = page_of(write_run(tmp_path / "run", sorted(records, key=lambda one: one["t"])))
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert len(text) < 6_000_000
    shares = sum(len(one["contributors"]) + len(one["left_out"]) for one in records if one["kind"] == "cycle")
    assert page.data["left_out"]["contributions"] == shares - len(page.data["contributions"]) > 0
    assert page.data["contributions"][-1]["cycle"] == 2999, "the newest are kept"
    assert "501 more" in [row[0] for row in page.rows if row], "of the table of losses"
    assert "Drawn are 58 of 400." in text
    charts = [json.loads(one) for one in re.findall(r'<script type="application/json">(.*?)</script>', text)]
    error = next(one for one in charts if one["label"].startswith("Error of"))
    assert len(error["lines"][0]["y"]) <= 6000
    assert {0.9, 0.001, errors[0], errors[-1]} <= set(error["lines"][0]["y"]), "extremes stay"
    assert max(len(one["marks"]) for one in charts) == 100


def test_other_numbers_of_an_evaluation_have_charts_with_their_targets(tmp_path: Path) -> None:
    records = [one for one in synthetic_records() if one["kind"] != "evaluation"]
    records[0] |= {"targets": ["perplexity <= 20.0"]}
    done = {"cycle": 3, "seconds": 0.1, "error": None, "loss": None}
    evaluations = [
        {"kind": "evaluation", "t": 10.0 + n, **done, "metrics": {"perplexity": 50.0 - n, "f1": None if n else 0.5}}
        for n in range(3)
    ]
    page = page_of(write_run(tmp_path / "run", [*records[:-1], *evaluations]))
    perplexity, f1 = page.data["metrics"]
    assert (perplexity["evaluations"], perplexity["agents"], perplexity["target"]) == (
        [[10.0, 50.0], [11.0, 49.0], [12.0, 48.0]], {}, 20.0,
    )  # fmt: skip
    assert (f1["evaluations"], f1["target"]) == ([[10.0, 0.5]], None)
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert ("target 20</text>" in text, "Error over time" in text) == (True, False)


def test_what_was_logged_before_the_training_lies_right_of_the_axis(tmp_path: Path) -> None:
    begin = {"kind": "begin", "t": 10.0, "agents": 4, "trained": 0.0}
    paused = {"kind": "pause", "t": 5.0, "start": 3.0, "end": 5.0, "reason": "3/4 agents"}
    more = [metrics(float(t), 0, loss=1.0) for t in range(4, 20)]
    records = [one for one in synthetic_records() if one["kind"] != "cycle"]
    text = write_report(write_run(tmp_path / "run", [*records[:-1], begin, paused, *more])).read_text(encoding="utf-8")
    lines = re.findall(r'class="line [^"]*" points="([^"]*)"', text)
    at = [float(point.split(",")[0]) for line in lines for point in line.split()]
    at += map(float, re.findall(r'class="band" x="([^"]*)"', text))
    assert len(at) > 16
    assert all(64 <= x <= 944 for x in at), at
    assert text.count(">-5 s</text>") == 2, "the error, and what was logged"


def test_a_number_too_large_for_a_mean_is_a_gap_and_one_too_small_for_ticks_is_drawn(tmp_path: Path) -> None:
    many = [metrics(7.0 + n / 100, 0, loss=1e308 * (-1) ** (n // 9), tiny=5e-324) for n in range(20)]
    done = {"kind": "evaluation", "t": 8.0, "cycle": 1, "seconds": 0.1, "error": 0.5, "loss": 1e308, "metrics": {"huge": 1e305}}
    records = [one for one in synthetic_records() if one["kind"] != "evaluation"]
    records[0] |= {"targets": ["loss <= 1.7e308"]}
    page = page_of(write_run(tmp_path / "run", [*records[:-1], *many, metrics(7.5, 1, loss=2.0), done]))
    found = {one["name"]: one for one in page.data["metrics"]}
    assert list(found["loss"]["agents"]) == ["1"]
    assert (found["loss"]["mean"], found["loss"]["evaluations"]) == ([[7.5, 2.0]], [])
    assert (list(found), found["loss"]["target"]) == (["tiny", "loss"], None)


def test_a_target_of_any_metric_is_in_its_chart(tmp_path: Path) -> None:
    targets = [Target("fpr@tpr>=0.95", at_most=0.1), Target("acc top5", at_least=0.9)]
    records = synthetic_records()
    records[0] |= {"targets": [str(one) for one in targets]}
    logged = metrics(10.0, 0, **{"fpr@tpr>=0.95": 0.2, "acc top5": 0.5, "acc": 0.25})
    page = page_of(write_run(tmp_path / "run", [*records[:-1], logged]))
    found = {one["name"]: one["target"] for one in page.data["metrics"]}
    assert found == {"fpr@tpr>=0.95": 0.1, "acc top5": 0.9, "acc": None, "loss": None}


def test_a_number_of_shards_that_was_decided_is_shown_with_what_it_was_decided_by(tmp_path: Path) -> None:
    records = synthetic_records()
    begin = {"kind": "begin", "t": 0.0, "agents": 4, "trained": 0.0}
    records.insert(1, begin)
    plain = write_report(write_run(tmp_path / "plain", records)).read_text(encoding="utf-8")
    assert "shards, decided" not in plain
    begin |= {"shards": 6, "period_s": 5.25, "fixed_s": 0.125, "wire_s": 4.5}
    page = write_report(write_run(tmp_path / "decided", records)).read_text(encoding="utf-8")
    assert "<b>6</b><span>shards, decided from 4.5s on the wire and 125ms of any cycle: a period of 5.2s</span>" in page
