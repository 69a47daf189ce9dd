"""Several runs on one page, as of a sweep: what differs in their settings, how they went, and a chart a metric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

from mpca.config.sources import read_tables
from mpca.errors import ConfigError
from mpca.private import replace_file
from mpca.records import RunFolder
from mpca.report import svg
from mpca.report.blocks import document, section, table
from mpca.report.chart import SECONDS, Unit, figure
from mpca.report.curves import LARGEST, Points, curves_of
from mpca.report.load import RunRecords, load_run
from mpca.units import format_duration

__all__ = ["render_several", "write_several"]

_COLOURS = 6  # .s0 to .s5 of page.css
_DASHES = ("", " dashed", " dotted")
_CHARTS = 24
_ERROR = "error of the joint model"
_OF_THE_RUN = ("format", "origin", "run")  # tables and keys that say nothing of how it trained


def write_several(run_dirs: Sequence[Path], out: Path) -> None:
    """Draw the page, atomically.

    Raises:
        ConfigError: a folder has no records, or what is there are none.
        OSError: the file cannot be written.
    """
    replace_file(out, render_several(run_dirs).encode())


def render_several(run_dirs: Sequence[Path]) -> str:
    """The whole page."""
    names = [path.resolve().name for path in run_dirs]
    if len(set(names)) < len(names):
        names = [str(path) for path in run_dirs]
    runs = {name: load_run(path) for name, path in zip(names, run_dirs, strict=True)}
    settings = [_settings(path, one) for path, one in zip(run_dirs, runs.values(), strict=True)]
    title = f"{len(runs)} runs"
    head = f"<header><h1>{escape(title)}</h1></header>"
    return document(title, [head, _table(runs, settings), *_charts(runs)], {"runs": list(runs), "settings": settings})


def _settings(path: Path, records: RunRecords) -> dict[str, Any]:
    """What the run was told, by key with its table's name."""
    with suppress(ConfigError):
        return dict(_flat(read_tables(RunFolder(path).config)))
    last = records.attempts[-1] if records.attempts else None
    return {} if last is None else {"method.name": last.method, "cluster.agents": last.num_agents, "seed": last.seed}


def _flat(tables: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tables.items():
        if not prefix and key in _OF_THE_RUN:
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _table(runs: dict[str, RunRecords], settings: Sequence[dict[str, Any]]) -> str:
    known = dict.fromkeys(key for one in settings for key in one)
    keys = [key for key in known if len({str(one.get(key)) for one in settings}) > 1]
    rows = []
    for (name, records), told in zip(runs.items(), settings, strict=True):
        errors = [one.error for one in records.evaluations if one.error is not None]
        numbers = (errors[-1], min(errors)) if errors else (None, None)
        reached = records.summary.get("seconds_to_target")
        rows.append((
            name,
            records.end.status if records.end else "not ended",
            *("–" if one is None else f"{100 * one:.2f} %" for one in numbers),
            format_duration(records.summary.get("seconds", records.last_t)),
            "–" if reached is None else format_duration(reached),
            *(told.get(key, "–") for key in keys),
        ))  # fmt: skip
    heads = ("run", "status", "error", "best error", "training", "to the target")
    return section("Runs", "With the settings that are not the same.", table((*heads, *keys), rows, frozenset(heads[2:])))


def _charts(runs: dict[str, RunRecords]) -> list[str]:
    lines: dict[str, list[svg.Line]] = {}
    for number, (name, records) in enumerate(runs.items()):
        css = f"s{number % _COLOURS}{_DASHES[number // _COLOURS % len(_DASHES)]}"
        for title, points, evaluated in _curves(records):
            titles = [f"{name}: {value:.4g} at {t:.1f} s" for t, value in points] if evaluated else []
            lines.setdefault(title, []).append(svg.Line(name, css, points, titles))
    drawn = []
    for title, some in list(lines.items())[:_CHARTS]:
        unit = Unit(" %", 100) if title == _ERROR else Unit()
        drawn.append(section(title, "", figure(title, some, SECONDS, unit, [(one.css, one.label) for one in some], height=280)))
    left_out = ", ".join(list(lines)[_CHARTS:])
    return [*drawn, section("More metrics", f"Not drawn: {left_out}.")] if left_out else drawn


def _curves(records: RunRecords) -> Iterator[tuple[str, Points, bool]]:
    """Title, points, and whether they are of the joint model."""
    errors = [(one.t, one.error) for one in records.evaluations if one.error is not None and abs(one.error) <= LARGEST]
    if errors:
        yield _ERROR, errors, True
    for curve in curves_of(records):
        if curve.mean:
            yield f"{curve.name}, mean of the agents", curve.mean, False
        if curve.evaluations:
            yield f"{curve.name} of the joint model", curve.evaluations, True
