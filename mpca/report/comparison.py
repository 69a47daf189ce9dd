"""`compare.html`: the tables of a comparison, and curves of error over time and over steps. It opens without a network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from mpca.private import replace_file
from mpca.report import svg
from mpca.report.blocks import document, legend, section, table
from mpca.sim.compare.result import Result, Row
from mpca.sim.sheet import Sheet

__all__ = ["render_comparison", "write_comparison"]

_COLOURS = 6  # .s0 to .s5 of page.css
_DASHES = ("", " dashed", " dotted")
_TEXTS = {"method", "tuned", "row"}


def write_comparison(result: Result, path: Path) -> None:
    """Draw the page, atomically."""
    replace_file(path, render_comparison(result).encode())


def render_comparison(result: Result) -> str:
    """The whole page."""
    shared = result.conf.shared
    targets = ", ".join(f"{100 * one:.1f} %" for one in result.targets)
    head = (
        f'<header><h1>{escape(shared.task)}</h1><span class="badge">simulated</span></header>'
        f'<p class="reason">Methods by their time to an error of {targets}. Simulated, without a codec.</p>'
    )
    sections = [head]
    for sheet, (*_, rows) in zip(result.sheets(), result.conditions, strict=True):
        sections.append(_condition(sheet, rows, result))
    formulas = "\n".join(result.formula_lines())
    sections.append(section("Cost formulas in force", "Of methods, transports and cycles.", f"<pre>{escape(formulas)}</pre>"))
    return document(shared.task, sections, {**result.to_json(), "curves": [_curve(row) for row in result.rows]})


def _curve(row: Row) -> dict[str, Any]:
    times, updates, errors = zip(*row.middle(), strict=True)
    return {
        "label": row.label, "agents": row.agents, "ratio": row.ratio, "times": times, "updates": updates, "errors": errors,
    }  # fmt: skip


def _condition(sheet: Sheet, rows: Sequence[Row], result: Result) -> str:
    until = float(result.conf.shared.updates)
    level = result.targets[-1], f"target {100 * result.targets[-1]:.1f} %"
    body = [table(sheet.columns, sheet.rows, frozenset(sheet.columns) - _TEXTS)]
    css = [f"s{number % _COLOURS}{_DASHES[number // _COLOURS % len(_DASHES)]}" for number in range(len(rows))]
    body.append(legend((one, row.label) for one, row in zip(css, rows, strict=True)))
    for number, (title, x_label) in enumerate((
        ("Error over time", "time, in updates of an agent that computes all the time (C)"),
        ("Error over steps", "updates that an agent has made"),
    )):  # fmt: skip
        lines = [
            svg.Line(row.label, one, [(point[number], point[2]) for point in row.middle() if point[number] <= until])
            for one, row in zip(css, rows, strict=True)
        ]
        body.append(f'<p class="note">{title}</p>')
        body.append(
            svg.line_chart(
                title,
                lines,
                x_label,
                lambda value: f"{value:g}",
                lambda value: f"{100 * value:g} %",
                y_ceiling=1.0,
                level=level,
            )
        )
    note = f"Medians of {result.conf.shared.seeds} runs that chose nothing. Curves end at {until:g}, when K agents have ended."
    return section(sheet.title, note, *body, *(f'<p class="note">{escape(one)}</p>' for one in sheet.notes))
