"""The needed SVG, written by hand: scales, ticks, a line chart, lanes of bars, a grid of cells. Colours are CSS classes.

Inline SVG needs no script and no network, and a mark's `<title>` is its tooltip in every browser.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Line", "Scale", "cells", "lanes", "line_chart", "ticks"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 34


@dataclass(frozen=True, slots=True)
class Scale:
    """Linear map from [low, high] to [start, end] in pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = (self.high - self.low) or 1.0
        return round(self.start + (value - self.low) / span * (self.end - self.start), 2)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart. `titles` are tooltips of its points; without titles points have no marks."""

    label: str
    css: str
    points: Sequence[tuple[float, float]]
    titles: Sequence[str] = ()


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round values inside [low, high], at steps of 1, 2 or 5 times a power of ten.

    Example:
        >>> ticks(0, 47, 5)
        [0.0, 10.0, 20.0, 30.0, 40.0]
    """
    span = high - low
    if span <= 1e-300:
        return [low]
    raw = span / about
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(float(n * step), 12) for n in range(first, last + 1)]


def _svg(width: float, height: float, label: str, body: Sequence[str], fixed: bool = False) -> str:
    size = f' width="{width:g}" height="{height:g}"' if fixed else ""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}"{size} role="img" aria-label="{escape(label, quote=True)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(body)}</svg>'
    )


def _text(x: float, y: float, text: str, css: str = "tick", anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{css}" text-anchor="{anchor}">{escape(text)}</text>'


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>"


def _mark(x: float, bottom: float, text: str) -> str:
    return (
        f'<g class="mark">{_title(text)}<line x1="{x:g}" x2="{x:g}" y1="{_TOP}" y2="{bottom:g}"/>'
        f'<path d="M{x:g} {_TOP + 8} l-5 -8 h10 z"/></g>'
    )


def _span(xs: Sequence[float], others: Sequence[float], from_zero: bool) -> tuple[float, float]:
    """The range of x: from zero, unless a large part of the width would be empty and the axis may begin elsewhere.

    What came before the training has negative seconds, and the range begins with it.
    """
    high = max([*xs, *others], default=1.0) or 1.0
    first = min([*xs, *others], default=0.0)
    return (min(first, 0.0), high) if from_zero or first < 0.3 * high else (max(first - 0.05 * (high - first), 0.0), high)


def line_chart(
    label: str,
    lines: Sequence[Line],
    x_label: str,
    format_x: Callable[[float], str],
    format_y: Callable[[float], str],
    y_ceiling: float | None = None,
    level: tuple[float, str] | None = None,
    marks: Sequence[tuple[float, str]] = (),
    bands: Sequence[tuple[float, float, str]] = (),
    width: int = 960,
    height: int = 300,
    from_zero: bool = False,
) -> str:
    """Lines over one x axis. `level` is a dashed line, `marks` are vertical lines, `bands` are grey ranges of x."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points] + ([level[0]] if level else [])
    others = [*(at for at, _ in marks), *(at for *ends, _ in bands for at in ends)]
    x = Scale(*_span(xs, others, from_zero), _LEFT, width - _RIGHT)
    y_low, y_high = 1.06 * min([0.0, *ys]), 1.06 * max([0.0, *ys]) or (0.0 if min(ys, default=0.0) < 0 else 1.0)
    y = Scale(y_low, min(y_high, y_ceiling) if y_ceiling else y_high, height - _BOTTOM, _TOP)
    body = []
    for start, end, why in bands:
        body.append(
            f'<rect class="band" x="{x(start):g}" y="{_TOP}" width="{max(x(end) - x(start), 1):g}" '
            f'height="{height - _BOTTOM - _TOP}">{_title(why)}</rect>'
        )
    for value in ticks(y.low, y.high, 5):
        body.append(f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y(value):g}" y2="{y(value):g}"/>')
        body.append(_text(_LEFT - 8, y(value) + 4, format_y(value), anchor="end"))
    for value in ticks(x.low, x.high, 8):
        body.append(_text(x(value), height - _BOTTOM + 18, format_x(value)))
    body.append(_text(width - _RIGHT, height - 4, x_label, css="axis", anchor="end"))
    if level:
        body.append(f'<line class="level" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y(level[0]):g}" y2="{y(level[0]):g}"/>')
        body.append(_text(_LEFT + 6, y(level[0]) - 5, level[1], css="level-text", anchor="start"))
    body.extend(_mark(x(at), height - _BOTTOM, why) for at, why in marks)
    for line in lines:
        path = " ".join(f"{x(px):g},{y(min(py, y.high)):g}" for px, py in line.points)
        body.append(f'<polyline class="line {line.css}" points="{path}"/>')
        for (px, py), title in zip(line.points, line.titles, strict=False):
            at = f'cx="{x(px):g}" cy="{y(min(py, y.high)):g}"'
            body.append(f'<circle class="dot {line.css}" {at} r="3">{_title(title)}</circle>')
    return _svg(width, height, label, body)


def lanes(
    label: str,
    names: Sequence[str],
    bars: Sequence[tuple[int, float, float, str, str, str]],
    marks: Sequence[tuple[float, str]],
    format_x: Callable[[float], str],
    pixels_per_second: float,
    low: float,
    high: float,
) -> str:
    """Horizontal lanes of bars over time, as wide as needed. A bar is (lane, start, end, css, text, title)."""
    lane_height, gap = 26, 8
    width = max(_LEFT + _RIGHT + (high - low) * pixels_per_second, 320)
    height = _TOP + len(names) * (lane_height + gap) + _BOTTOM
    x = Scale(low, high, _LEFT + 12, width - _RIGHT)
    body = []
    for value in ticks(low, high, max(int(width / 110), 2)):
        body.append(f'<line class="grid" x1="{x(value):g}" x2="{x(value):g}" y1="{_TOP}" y2="{height - _BOTTOM}"/>')
        body.append(_text(x(value), height - _BOTTOM + 18, format_x(value)))
    for lane, name in enumerate(names):
        body.append(_text(_LEFT, _TOP + lane * (lane_height + gap) + 17, name, css="lane", anchor="end"))
    for lane, start, end, css, text, title in bars:
        left, wide = x(start), max(x(end) - x(start), 1.0)
        top = _TOP + lane * (lane_height + gap)
        body.append(
            f'<rect class="bar {css}" x="{left:g}" y="{top}" width="{wide:g}" height="{lane_height}" rx="2">'
            f"{_title(title)}</rect>"
        )
        if text and wide > 9 * len(text):
            body.append(_text(left + wide / 2, top + 17, text, css="bar-text"))
    for at, why in marks:
        if low <= at <= high:
            body.append(_mark(x(at), height - _BOTTOM, why))
    return _svg(width, height, label, body, fixed=True)


def cells(
    label: str,
    rows: Sequence[str],
    columns: int,
    values: Sequence[tuple[int, int, float | None, str]],
    column_names: Sequence[tuple[int, str]],
    x_label: str,
    width: int = 960,
) -> str:
    """A grid with a row per agent and a column per bin. A value is (row, column, share of full colour or None, title)."""
    row_height, gap = (22, 4) if len(rows) <= 16 else (10, 1)
    height = _TOP + len(rows) * (row_height + gap) + _BOTTOM
    wide = (width - _LEFT - _RIGHT) / max(columns, 1)
    body = []
    for row, name in enumerate(rows):
        body.append(_text(_LEFT - 8, _TOP + row * (row_height + gap) + row_height / 2 + 4, name, css="lane", anchor="end"))
    for row, column, share, title in values:
        css, opacity = ("cell", f' fill-opacity="{0.12 + 0.88 * share:.2f}"') if share is not None else ("cell-out", "")
        body.append(
            f'<rect class="{css}"{opacity} x="{_LEFT + column * wide:.2f}" y="{_TOP + row * (row_height + gap)}" '
            f'width="{max(wide - min(1.0, wide * 0.15), 0.4):.2f}" height="{row_height}">{_title(title)}</rect>'
        )
    for column, name in column_names:
        body.append(_text(_LEFT + (column + 0.5) * wide, height - _BOTTOM + 18, name))
    body.append(_text(width - _RIGHT, height - 4, x_label, css="axis", anchor="end"))
    return _svg(width, height, label, body)
