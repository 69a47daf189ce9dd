"""A figure of a paper as a page: tables, drawings, and where its claims hold. It opens without a network."""

from __future__ import annotations

from dataclasses import asdict
from html import escape
from pathlib import Path

from mpca.private import replace_file
from mpca.report import svg
from mpca.report.blocks import axis_seconds, document, legend, section, table
from mpca.sim.compare.figure_types import Bars, Chart, Figure, Shown

__all__ = ["render_figure", "write_figure"]

_COLOURS = 6  # .s0 to .s5 of page.css
_DASHES = ("", " dashed", " dotted")
_WIDTH = 900


def write_figure(name: str, figure: Figure, shown: Shown, path: Path) -> None:
    """Draw the page, atomically.

    Raises:
        OSError: the file cannot be written.
    """
    replace_file(path, render_figure(name, figure, shown).encode())


def render_figure(name: str, figure: Figure, shown: Shown) -> str:
    """The whole page."""
    head = f'<header><h1>{escape(figure.source)}</h1></header><p class="reason">{escape(figure.how)}</p>'
    drawn = [_chart(one) if isinstance(one, Chart) else _bars(one) for one in shown.drawn]
    tables = [section(one.title, " ".join(one.notes), table(one.columns, one.rows)) for one in shown.sheets]
    claims = "".join(f"<li>{escape(one.line())}</li>" for one in shown.claims)
    said = section("What the paper says of it", "", f"<ul>{claims}</ul>")
    data = {"figure": name, **{key: [asdict(one) for one in getattr(shown, key)] for key in ("sheets", "drawn", "claims")}}
    return document(figure.source, [head, *drawn, said, *tables], data)


def _chart(chart: Chart) -> str:
    css = [f"s{number % _COLOURS}{_DASHES[number // _COLOURS % len(_DASHES)]}" for number in range(len(chart.lines))]
    lines = [svg.Line(name, one, points) for one, (name, points) in zip(css, chart.lines.items(), strict=True)]
    drawing = svg.line_chart(
        chart.title,
        lines,
        chart.x_label,
        lambda value: f"{10**value:.3g}" if chart.log else f"{value:g}",
        lambda value: f"{100 * value:g} %" if chart.percent else f"{value:g}",
        y_ceiling=1.0 if chart.percent else None,
    )
    return section(chart.title, "", legend(zip(css, chart.lines, strict=True)), drawing)


def _bars(one: Bars) -> str:
    end = max(bar[2] for bar in one.bars)
    shards = sorted({bar[3] for bar in one.bars if bar[3] is not None})
    drawn = [
        (lane, start, stop, "s5" if shard is None else f"s{shard % _COLOURS}", "" if shard is None else str(shard), text)
        for lane, start, stop, shard, text in one.bars
    ]
    entries = [*((f"s{shard % _COLOURS}", f"shard {shard}") for shard in shards), ("s5", "computes")]
    drawing = svg.lanes(one.title, one.lanes, drawn, (), axis_seconds, _WIDTH / end, 0.0, end)
    return section(one.title, "", legend(entries), f'<div class="scroll">{drawing}</div>')
