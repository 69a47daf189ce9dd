"""Sections of the report about bytes: those that cycles moved, and the shares of exchange and data on the wire."""

from __future__ import annotations

from itertools import accumulate

from mpca.report import svg
from mpca.report.blocks import section, table
from mpca.report.chart import SECONDS, Unit, figure
from mpca.report.series import Bytes, Series, Wire
from mpca.units import format_size

__all__ = ["sections"]

_COUNTERS = (
    ("driver_in", "into the driver"),
    ("driver_out", "out of the driver"),
    ("fetched", "into executors"),
    ("sent", "out of executors"),
)
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
_POINTS = 120  # points of a line of rates, each a mean over one part of the time


def sections(series: Series) -> list[str]:
    """The sections as HTML; none before the first cycle."""
    if not series.bytes:
        return []
    rows = sorted(series.bytes, key=lambda row: row.seconds)  # an attempt repeats the seconds that came after its backup
    return [_moved(rows), *([] if series.wire is None else [_shared(rows, series.wire)])]


def _moved(rows: list[Bytes]) -> str:
    totals = {key: list(accumulate(getattr(row, key) for row in rows)) for key, _ in _COUNTERS}
    unit, name = _unit(max(total[-1] for total in totals.values()))
    times = [row.seconds for row in rows]
    lines = [
        svg.Line(
            words,
            f"s{number}",
            [(times[0], 0.0), *((t, total / unit) for t, total in zip(times, totals[key], strict=True))],
        )
        for number, (key, words) in enumerate(_COUNTERS)
    ]
    sums = (format_size(total[-1]) for total in totals.values())
    entries = [(line.css, f"{line.label}: {size}") for line, size in zip(lines, sums, strict=True)]
    chart = figure("Bytes moved since the start", lines, SECONDS, Unit(f" {name}"), entries, height=240)
    note = "Added up over the cycles; a byte between two executors counts once in and once out."
    return section("Bytes", note, chart)


def _shared(rows: list[Bytes], wire: Wire) -> str:
    whole = wire.exchange + wire.data_remote
    told = [
        (name, format_size(count), _rate(count / wire.seconds), f"{100 * count / whole:.1f} %" if shares and whole else "–")
        for name, count, shares in (
            ("exchange, into executors", wire.exchange, True),
            ("data set, from other hosts", wire.data_remote, True),
            ("data set, from the agents' own hosts", wire.data_read - wire.data_remote, False),
        )
    ]
    note = (
        "What executors received from the first cycle's end to the last one's, all together. The data set counts as it is read "
        "through HDFS; files of this machine and the agents' local copies do not. Executors on one host share no wire, and "
        "still count."
    )
    body = [
        table(("what", "bytes", "a second", "share of the wire"), told, frozenset({"bytes", "a second", "share of the wire"}))
    ]
    if wire.data_read:
        body += _chart(rows)
    return section("The wire: exchange and data", note, *body)


def _chart(rows: list[Bytes]) -> list[str]:
    rates = {
        "exchange, into executors": _rates([(row.seconds, row.fetched) for row in rows]),
        "data set, from other hosts": _rates([(row.seconds, row.data_remote) for row in rows]),
    }
    unit, name = _unit(max(rate for points in rates.values() for _, rate in points))
    lines = [
        svg.Line(words, f"s{number}", [(t, rate / unit) for t, rate in points])
        for number, (words, points) in enumerate(rates.items())
    ]
    entries = [(line.css, line.label) for line in lines]
    return [figure("Bytes a second into executors", lines, SECONDS, Unit(f" {name}/s"), entries, height=200)]


def _rates(moved: list[tuple[float, int]]) -> list[tuple[float, float]]:
    """Bytes a second by time: the end and the mean of each part of the time. Agents report their reads twice a second."""
    (begin, _), (end, _) = moved[0], moved[-1]
    least = max((end - begin) / _POINTS, 1.0)
    points, since, count = [], begin, 0
    for t, more in moved[1:]:
        count += more
        if t - since >= least or t == end:
            points.append((t, count / (t - since) if t > since else 0.0))
            since, count = t, 0
    return points


def _unit(most: float) -> tuple[int, str]:
    return next((unit, name) for unit, name in _UNITS if unit == 1 or most >= unit)


def _rate(bytes_per_s: float) -> str:
    return f"{format_size(round(bytes_per_s))}/s"
