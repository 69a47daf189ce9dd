"""A chart of lines: for the page's script, which draws it with uPlot, and as SVG until then and where no script runs.

`page.js` reads what is in the `figure`; the fields of that JSON are made here alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from mpca.records.kinds import plain
from mpca.report import svg
from mpca.report.blocks import axis_seconds, embedded, legend

__all__ = ["SECONDS", "Unit", "figure"]

SECONDS = "seconds of training"
_POINTS, _OF_A_LINE = 6000, 300  # of all lines of a chart; at least of each. The page of a long run can still be opened
_MARKS = 100  # and as many bands, the newest


@dataclass(frozen=True, slots=True)
class Unit:
    """How the numbers of an axis are written: each `factor` times, with a `suffix`."""

    suffix: str = ""
    factor: float = 1.0

    def __call__(self, value: float) -> str:
        return f"{self.factor * value:g}{self.suffix}"


def figure(
    label: str,
    lines: Sequence[svg.Line],
    x_label: str,
    y_unit: Unit,
    entries: Iterable[tuple[str, str]] = (),
    y_ceiling: float | None = None,
    level: tuple[float, str] | None = None,
    marks: Sequence[tuple[float, str]] = (),
    bands: Sequence[tuple[float, float, str]] = (),
    height: int = 300,
) -> str:
    """The chart as HTML.

    Args:
        label: what it shows, for those who cannot see it.
        lines: in any order; of more points than a screen can show, the lowest and the highest of each part.
        x_label: of the axis; of `SECONDS`, charts zoom together.
        y_unit: of the other axis.
        entries: (CSS class, name) of the legend of the SVG.
        y_ceiling: the highest y that is worth drawing.
        level: (y, text) of a dashed line.
        marks: (x, text) of vertical lines.
        bands: (x, x, text) of shaded ranges.
        height: in pixels.
    """
    lines = [_thinned(_by_x(line), max(_POINTS // len(lines), _OF_A_LINE)) for line in lines]
    marks, bands = sorted(marks)[-_MARKS:], sorted(bands)[-_MARKS:]
    x_unit = axis_seconds if x_label == SECONDS else Unit()
    drawing = svg.line_chart(
        label, lines, x_label, x_unit, y_unit, y_ceiling, level, marks, bands, height=height, from_zero=x_label == SECONDS
    )
    said: dict[str, Any] = {
        "label": label,
        "x": x_label,
        "seconds": x_label == SECONDS,
        "factor": y_unit.factor,
        "suffix": y_unit.suffix,
        "height": height,
        "ceiling": y_ceiling,
        "level": level,
        "marks": marks,
        "bands": bands,
        "lines": [
            {
                "label": line.label,
                "css": line.css,
                "x": [_short(x) for x, _ in line.points],
                "y": [_short(y) for _, y in line.points],
                "dots": bool(line.titles),
            }
            for line in lines
            if line.points
        ],
    }
    kept = embedded(json.dumps(plain(said), separators=(",", ":"), allow_nan=False))
    data = f'<script type="application/json">{kept}</script>'
    fallback = f'<!--svg-->{legend(entries)}<div class="scroll">{drawing}</div><!--/svg-->'
    return f'<figure class="chart" aria-label="{escape(label, quote=True)}">{data}{fallback}</figure>'


def _by_x(line: svg.Line) -> svg.Line:
    """The line from left to right, as uPlot needs it: an attempt goes on at a backup, behind which the one before had come."""
    order = sorted(range(len(line.points)), key=lambda at: line.points[at][0])
    return replace(line, points=[line.points[at] for at in order], titles=[line.titles[at] for at in order if line.titles])


def _thinned(line: svg.Line, most: int) -> svg.Line:
    """The line with `most` points, first and last among them, and the lowest and the highest of each equal part."""
    if len(line.points) <= most:
        return line
    inner, parts = range(1, len(line.points) - 1), (most - 2) // 2
    kept = {0, len(line.points) - 1}
    for part in range(parts):
        some = inner[part * len(inner) // parts : (part + 1) * len(inner) // parts]
        kept |= {pick(some, key=lambda at: line.points[at][1]) for pick in (min, max)}
    order = sorted(kept)
    return replace(line, points=[line.points[at] for at in order], titles=[line.titles[at] for at in order if line.titles])


def _short(value: float) -> float:
    """With the digits that a chart can show."""
    return float(f"{value:.7g}")
