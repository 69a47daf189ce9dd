"""`report.html`: one file, drawn from the run's records, which opens without a network. Loss and metrics come first.

The drawn numbers are embedded as JSON (``<script type="application/json" id="mpca-data">``, which no browser runs), so that a
program can read them from the page: of very long lists the newest entries, and how many were `left_out`. `watch` shows parts of
the same page while a run goes on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from mpca.private import replace_file
from mpca.records import to_json
from mpca.report import curves, exchanges, svg, wire
from mpca.report.blocks import axis_seconds, document, folded, legend, link, section, table
from mpca.report.chart import SECONDS, Unit, figure
from mpca.report.load import RunRecords, load_run
from mpca.report.series import STAGES, Series, extract
from mpca.units import format_duration, format_size

__all__ = ["render", "running", "write_report"]

#: Number of cycles in the timeline, the newest ones.
_TIMELINE_CYCLES = 400
_COLUMNS, _CELLS = 320, 16_000  # of the grid of tau
_EMBEDDED = 10_000  # entries of a list in the embedded data, the newest
_COLOURS = 6  # .s0 to .s5 of page.css
_BADGES = {"reached": "good", "early_stopping": "good", "max_time": "good", "max_cycles": "good", "failed": "bad"}


def write_report(run_dir: Path) -> Path:
    """Draw the report of a run folder into its ``report.html``, atomically; returns the path."""
    page = render(load_run(run_dir))
    target = run_dir / "report.html"
    replace_file(target, page.encode())
    return target


def render(records: RunRecords) -> str:
    """The whole page."""
    series = extract(records)
    data = {
        "name": records.name,
        "attempts": [to_json(one) for one in records.attempts],
        "end": to_json(records.end) if records.end else None,
        "summary": records.summary,
        **series.to_dict(_EMBEDDED),
    }
    engine = [
        *([_losses(series)] if not series.losses else []),
        _timeline(series) if records.cycles or not records.exchanges else exchanges.section_of(records.exchanges),
        _tau(series),
        _agents(records, series),
        *wire.sections(series),
        _pauses(records, series),
        _backups(records, series),
        _summary(records),
    ]
    below = folded("The engine: cycles, agents, bytes, pauses", engine)
    return document(records.name, [*_learning(records, series), below], data)


def running(records: RunRecords) -> list[str]:
    """What is worth looking at while the run goes on: an HTML element each."""
    series = extract(records)
    return [part for part in (*_learning(records, series, live=True), _agents(records, series)) if part]


def _learning(records: RunRecords, series: Series, live: bool = False) -> list[str]:
    """How the run went, and how its model learnt."""
    marks, bands, red = _loss_marks(series) + _evaluator_marks(series), _bands(records, series), _red(series)
    return [
        _head(records, live),
        _figures(records, series),
        _error(records, series, marks, bands, red),
        *curves.sections(series.metrics, marks, bands, "" if series.curve else red),
        *([_losses(series)] if series.losses else []),
    ]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"


def _seconds(value: float) -> str:
    return format_duration(value) if value >= 1 or value == 0 else f"{value * 1000:.0f}ms"


def _counted(records: RunRecords) -> str:
    """What the numbers called `cycle` in the records count."""
    return "exchange" if records.exchanges else "cycle"


def _head(records: RunRecords, live: bool) -> str:
    ended = records.end
    status = ended.status if ended else str(records.summary.get("status", "not ended"))
    reason = ended.reason if ended else str(records.summary.get("reason", ""))
    if not ended and live:
        status, reason = "running", "training" if records.begins else "starting"
        if records.pauses and records.pauses[-1].end is None:
            reason = f"paused: {records.pauses[-1].reason}"
    elif not ended and not records.summary:
        reason = f"The records stop {format_duration(records.last_t)} after the start: the run goes on, or was cut off."
    colour = _BADGES.get(status, "")
    if colour == "good" and not (records.cycles or records.exchanges):
        colour = "bad"  # an older version's status for a limit that was met before the first commit
    badge = f'<span class="badge {colour}">{escape(status)}</span>'
    pages = "".join(f'<p class="note">{escape(one.tracker)}: {link(one.url)}</p>' for one in records.trackers if one.url)
    head = f"<header><h1>{escape(records.name)}</h1>{badge}</header>"
    if colour != "bad":
        return f'<div>{head}<p class="reason">{escape(reason)}</p>{pages}</div>'
    cause, _, more = reason.strip().partition("\n")
    return f'<div>{head}<div class="cause"><p>{escape(cause)}</p>{_traceback(more)}</div>{pages}</div>'


def _traceback(text: str) -> str:
    """The lines of a traceback. Places in files are told from code, and the exception from both."""
    lines = [
        f'<span class="{"place" if one.lstrip().startswith("File ") else "code"}">{escape(one)}</span>'
        if one[:1].isspace()
        else f"<b>{escape(one)}</b>"
        for one in text.splitlines()
    ]
    return f"<pre>{chr(10).join(lines)}</pre>" if lines else ""


def _figures(records: RunRecords, series: Series) -> str:
    summary = records.summary
    errors = [point.error for point in series.curve]
    moved = [one.bytes for one in records.cycles] + [one.bytes for one in records.exchanges]
    figures = [
        (_percent(summary.get("final_error", errors[-1] if errors else None)), "error of the joint model"),
        (_percent(summary.get("best_error", min(errors, default=None))), "best error"),
        (format_duration(summary.get("seconds", records.last_t)), "of training"),
        (
            f"{len(records.cycles) or sum(not e.reason for e in records.exchanges):,}",
            f"{_counted(records)}s",
        ),
        (str(len(series.agents)), "agents"),
        (
            f"{len(series.losses)} / {sum(loss.replaced_after_s is not None for loss in series.losses)}",
            "lost / came again",
        ),
        (
            format_size(sum(one[way] for one in moved for way in ("driver_in", "driver_out"))),
            "through the driver",
        ),
    ]
    if summary.get("seconds_to_target") is not None:
        figures.insert(2, (format_duration(summary["seconds_to_target"]), "to the target"))
    decided = next((one for one in reversed(records.begins) if one.shards is not None), None)
    if decided is not None:
        period, fixed, wire = (_seconds(value or 0.0) for value in (decided.period_s, decided.fixed_s, decided.wire_s))
        words = f"shards, decided from {wire} on the wire and {fixed} of any cycle: a period of {period}"
        figures.append((str(decided.shards), words))
    if summary.get("pause_share") is not None:
        figures.append((_percent(summary["pause_share"]), "paused for exchange"))
    cards = "".join(f'<div class="figure"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for value, name in figures)
    return f'<div class="figures">{cards}</div>'


def _loss_marks(series: Series) -> list[tuple[float, str]]:
    return [(loss.seconds, f"agent {loss.agent} lost at {loss.seconds:.1f} s: {loss.reason}") for loss in series.losses]


def _evaluator_marks(series: Series) -> list[tuple[float, str]]:
    return [(one["t"], f"evaluator {one['event']} at {one['t']:.1f} s: {one['reason']}") for one in series.evaluators]


def _bands(records: RunRecords, series: Series) -> list[tuple[float, float, str]]:
    return [
        (p["start"], records.last_t if p.get("end") is None else p["end"], f"paused: {p.get('reason', '')}")
        for p in series.pauses
    ]


def _red(series: Series) -> str:
    """What is red in the charts over time; a note ends with it."""
    return f" Red: agents lost, pauses{_evaluator_ends(series)}."


def _evaluator_ends(series: Series) -> str:
    if not series.evaluators:
        return ""
    stopped = any(one["event"] == "stopped" for one in series.evaluators)
    ends = f", and {len(series.evaluators)} times the evaluator's process ended"
    return ends + ("; after the last time nothing was evaluated any more" if stopped else "")


def _error(
    records: RunRecords,
    series: Series,
    marks: Sequence[tuple[float, str]],
    bands: Sequence[tuple[float, float, str]],
    red: str,
) -> str:
    if not series.curve:
        none = f"No evaluation was recorded{_evaluator_ends(series)}."
        return "" if series.metrics else section("Error over time", none)
    target = records.attempts[-1].target_error if records.attempts else 0.0
    line = svg.Line(
        "error",
        "s0",
        [(point.t, point.error) for point in series.curve],
        [f"{_percent(p.error)} at {p.t:.1f} s, {_counted(records)} {p.cycle}" for p in series.curve],
    )
    chart = figure(
        "Error of the joint model over time",
        [line],
        SECONDS,
        Unit(" %", 100),
        y_ceiling=1.0,
        level=(target, f"target {_percent(target)}") if target else None,
        marks=marks,
        bands=bands,
    )
    note = f"Share of wrong answers of the joint model, one dot an evaluation.{red}"
    return section("Error over time", note, chart)


def _timeline(series: Series) -> str:
    if not series.bars:
        return section("Cycles", "No cycle was committed.")
    cycles = sorted({bar.cycle for bar in series.bars})
    shown = set(cycles[-_TIMELINE_CYCLES:])
    bars = [bar for bar in series.bars if bar.cycle in shown]
    low, high = min(bar.start for bar in bars), max(bar.end for bar in bars)
    starts = _starts(bars)
    period = median(b - a for a, b in pairwise(starts)) if len(starts) > 1 else high - low
    pixels = min(46 / max(period, 1e-3), 16_000 / max(high - low, 1e-3))
    pixels = max(pixels, 880 / max(high - low, 1e-3))
    drawn = [
        (
            STAGES.index(bar.stage),
            bar.start,
            bar.end,
            f"s{bar.shard % _COLOURS}",
            str(bar.cycle),
            f"cycle {bar.cycle}: {bar.stage} of shard {bar.shard}, {_seconds(bar.end - bar.start)}",
        )
        for bar in bars
    ]
    shards = sorted({bar.shard for bar in bars})
    note = "Stages by shard, as in figure 9 of the paper; a number is the cycle. It scrolls sideways."
    if len(shown) < len(cycles):
        note += f" The newest {len(shown)} of {len(cycles)} cycles."
    return section(
        "Cycles: reduce, prepare, broadcast",
        note,
        legend((f"s{shard % _COLOURS}", f"shard {shard}") for shard in shards),
        '<div class="scroll">',
        svg.lanes("Stages of the cycles over time", STAGES, drawn, _loss_marks(series), axis_seconds, pixels, low, high),
        "</div>",
    )


def _starts(bars: Sequence[Any]) -> list[float]:
    first: dict[int, float] = {}
    for bar in bars:
        first[bar.cycle] = min(bar.start, first.get(bar.cycle, bar.start))
    return sorted(first.values())


def _losses(series: Series) -> str:
    if not series.losses:
        return section("Agents lost and replaced", "None was lost.")
    rows = [
        (
            f"{loss.seconds:.1f} s",
            f"{loss.agent} (incarnation {loss.incarnation})",
            loss.host,
            loss.executor,
            "–" if loss.pid is None else loss.pid,
            loss.reason,
            "nobody came"
            if loss.replaced_after_s is None
            else f"after {format_duration(loss.replaced_after_s)} on executor {loss.replaced_on}",
        )
        for loss in series.losses
    ]
    return section(
        "Agents lost and replaced",
        "Red marks in the charts above.",
        table(("when", "agent", "host", "executor", "pid", "reason", "replaced"), rows),
    )


def _tau(series: Series) -> str:
    if not series.contributions:
        return ""
    agents = sorted({row.agent for row in series.contributions})
    cycles = sorted({row.cycle for row in series.contributions})
    columns = min(len(cycles), _COLUMNS, max(_CELLS // len(agents), 40))
    column_of = {cycle: number * columns // len(cycles) for number, cycle in enumerate(cycles)}
    high = max((row.tau or 0 for row in series.contributions), default=0) or 1
    bins: dict[tuple[int, int], list[Any]] = {}
    for row in series.contributions:
        bins.setdefault((agents.index(row.agent), column_of[row.cycle]), []).append(row)
    values: list[tuple[int, int, float | None, str]] = []
    for (line, column), members in bins.items():
        out = [row for row in members if row.tau is None]
        if out:
            title = f"agent {agents[line]}, cycle {out[0].cycle}: left out, {out[0].reason}"
            values.append((line, column, None, title))
            continue
        mean = sum(row.tau for row in members) / len(members)
        title = f"agent {agents[line]}, cycle {members[0].cycle}: tau {mean:.0f}, shard {members[0].shard}"
        values.append((line, column, mean / high, title))
    names = [(column_of[int(n)], f"{int(n)}") for n in svg.ticks(cycles[0], cycles[-1], 10) if int(n) in column_of]
    return section(
        "tau: updates of each agent between two refreshes of a shard",
        f"Darker is more, up to {high}; red: left out of that cycle; nothing: the agent was not there.",
        '<div class="scroll">',
        svg.cells("tau by agent and cycle", [f"agent {a}" for a in agents], columns, values, names, "cycle"),
        "</div>",
    )


def _agents(records: RunRecords, series: Series) -> str:
    if not series.agents:
        return ""
    heads = (
        "agent",
        "incarnations",
        "host",
        "executor",
        "exchanges",
        "left out",
        "tau mean",
        "least",
        "most",
        "pause mean",
        "longest",
    )
    rows = [
        (
            row.agent,
            row.incarnations,
            row.host,
            row.executor,
            row.exchanges,
            row.left_out,
            *("–" if value is None else f"{value:.0f}" for value in (row.tau_mean, row.tau_min, row.tau_max)),
            *("–" if value is None else f"{1000 * value:.2f} ms" for value in (row.pause_mean_s, row.pause_max_s)),
        )
        for row in series.agents
    ]
    shown = 4 if records.exchanges else len(heads)  # what agents that ask by themselves exchanged has a section of its own
    numeric = frozenset(heads) - {"host", "executor", "agent"}
    body = table(heads[:shown], [row[:shown] for row in rows], numeric)
    return section("Agents", "Over all incarnations; host and executor are the last ones.", body)


def _pauses(records: RunRecords, series: Series) -> str:
    body = []
    by_cycle: dict[int, list[float]] = {}
    for row in series.contributions:
        if row.pause_s is not None:
            by_cycle.setdefault(row.cycle, []).append(1000 * row.pause_s)
    if by_cycle:
        lines = [
            svg.Line("longest of the agents", "s1", [(float(n), max(pauses)) for n, pauses in by_cycle.items()]),
            svg.Line("mean of the agents", "s0", [(float(n), sum(p) / len(p)) for n, p in by_cycle.items()]),
        ]
        entries = [(line.css, line.label) for line in lines]
        body.append(figure("Interruption of the agents by cycle", lines, "cycle", Unit(" ms"), entries, height=200))
    share = records.summary.get("pause_share")
    note = "How long agents stood still to hand over a shard."
    if share is not None:
        note += f" Over the whole run: {_percent(share)} of their time, installs included."
    if series.pauses:
        rows = [
            (
                f"{one['start']:.1f} s",
                "not ended" if one["end"] is None else format_duration(one["end"] - one["start"]),
                one["reason"],
            )
            for one in series.pauses
        ]
        body.append('<p class="note">The run as a whole was paused:</p>')
        body.append(table(("when", "for", "reason"), rows))
    else:
        note += " The run as a whole was never paused."
    return section("Pause", note, *body)


def _backups(records: RunRecords, series: Series) -> str:
    if not series.backups:
        return ""
    rows = [
        (
            f"{b['t']:.1f} s",
            b["cycle"],
            format_size(b.get("bytes") or 0),
            _seconds(b.get("seconds") or 0.0),
            "ok" if b.get("ok") else b.get("reason", "failed"),
            b["path"],
        )
        for b in series.backups
    ]
    return section(
        "Backups",
        "Newest last.",
        table(("when", count := _counted(records), "size", "took", "result", "path"), rows, frozenset({count})),
    )


def _summary(records: RunRecords) -> str:
    if not records.summary:
        return ""
    rows = [
        (key, json.dumps(value) if isinstance(value, (dict, list)) else "–" if value is None else value)
        for key, value in records.summary.items()
    ]
    torn = " The last line of records.jsonl was cut off and is left out." if records.torn else ""
    return section("Summary", f"As in summary.json.{torn}", table(("key", "value"), rows))
