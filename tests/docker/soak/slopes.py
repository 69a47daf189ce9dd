"""What grows: a line through the samples of each process, and one slope for all processes of a kind. Pure arithmetic.

A process that is killed begins anew, so each process has a line of its own, and its first minutes are left out: caches fill and
classes are loaded. The slope of a kind is what fits the lines of all its processes best when they are parallel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["ALLOWED", "LEAST_SAMPLES", "LEAST_T", "WARM_UP_S", "Sample", "Slope", "criterion", "slopes", "table"]

#: Of each process, from its first sample on. In 78 minutes the JVMs of drivers and executors grew for up to ten minutes after
#: their start, by 40 to 190 MiB, and those that lived for 25 were level from there on: compiled code, not the run.
WARM_UP_S = 600.0
#: Fewer say nothing: a line through three points is straight by chance.
LEAST_SAMPLES = 10
#: Of the soak. In a shorter one nothing is judged: heaps still fill, and what fills in ten minutes is much in an hour.
LEAST_SPAN_S = 1800.0
#: A slope over its standard error. Samples of one process are alike, so that 2 would be met by chance.
LEAST_T = 4.0
#: What may grow in an hour, in the unit of the figure. Records and logs grow with cycles, and HDFS files with records.
ALLOWED = {"memory_mib": 32.0, "descriptors": 12.0, "hdfs_blocks": 60.0, "hdfs_files": 60.0, "log_mib": 64.0}


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure of one process, or of the cluster, at one moment."""

    at: float  # seconds since the soak began
    kind: str  # of process: "agent", "executor", ...; "hdfs", "logs"
    process: str  # which one
    figure: str  # a key of `ALLOWED`
    value: float


@dataclass(frozen=True, slots=True)
class Slope:
    """Of one figure of one kind."""

    kind: str
    figure: str
    processes: int
    samples: int  # after warm-up
    mean: float
    last: float
    an_hour: float | None  # None: too few samples
    t: float | None  # the slope over its standard error; None: too few samples, or all lie on the line
    grows: bool  # more than is allowed, and not by chance


def criterion() -> str:
    """When a slope counts, in a sentence."""
    allowed = ", ".join(f"{figure} {most:g}" for figure, most in ALLOWED.items())
    return (
        f"grows: in a soak of at least {LEAST_SPAN_S / 60:.0f} minutes, with at least {LEAST_SAMPLES} samples after the first "
        f"{WARM_UP_S:.0f} s of each process, a slope of at least {LEAST_T:g} standard errors, and more an hour than {allowed}"
    )


def slopes(samples: Iterable[Sample]) -> list[Slope]:
    """One for each kind and figure, in the order of their first samples."""
    by: dict[tuple[str, str], dict[str, list[Sample]]] = {}
    span = 0.0
    for one in samples:
        by.setdefault((one.kind, one.figure), {}).setdefault(one.process, []).append(one)
        span = max(span, one.at)
    return [_slope(kind, figure, lines, judged=span >= LEAST_SPAN_S) for (kind, figure), lines in by.items()]


def _slope(kind: str, figure: str, lines: Mapping[str, list[Sample]], *, judged: bool) -> Slope:
    everything = [one for line in lines.values() for one in line]
    last = max(everything, key=lambda one: one.at).value
    warm = [kept for line in lines.values() if len(kept := [one for one in line if one.at >= line[0].at + WARM_UP_S]) > 1]
    count = sum(map(len, warm))
    mean = math.fsum(one.value for one in everything) / len(everything)
    an_hour, t = _fit(warm) if count >= LEAST_SAMPLES else (None, None)
    grows = judged and an_hour is not None and an_hour > ALLOWED[figure] and (t is None or t >= LEAST_T)
    return Slope(kind, figure, len(lines), count, mean, last, an_hour, t, grows)


def _fit(lines: list[list[Sample]]) -> tuple[float, float | None]:
    """Slope an hour of parallel lines, and the slope over its standard error; None: every point lies on its line."""
    xx = xy = yy = 0.0
    for line in lines:
        middle = math.fsum(one.at for one in line) / len(line) / 3600
        height = math.fsum(one.value for one in line) / len(line)
        for one in line:
            x, y = one.at / 3600 - middle, one.value - height
            xx, xy, yy = xx + x * x, xy + x * y, yy + y * y
    slope = xy / xx
    free = sum(map(len, lines)) - len(lines) - 1
    error = math.sqrt(max(yy - slope * xy, 0.0) / free / xx)
    return slope, slope / error if error > 1e-12 * abs(slope) else None


def table(found: Iterable[Slope]) -> list[str]:
    """Lines for people."""
    said = [f"{'what':32} {'processes':>9} {'samples':>7} {'mean':>10} {'last':>10} {'an hour':>10} {'t':>7}"]
    for one in found:
        an_hour = "too few" if one.an_hour is None else f"{one.an_hour:+.2f}"
        t = "" if one.t is None else f"{one.t:.1f}"
        what = f"{one.kind} {one.figure}"
        said.append(
            f"{what:32} {one.processes:9} {one.samples:7} {one.mean:10.1f} {one.last:10.1f} {an_hour:>10} {t:>7}"
            f"{'  GROWS' if one.grows else ''}"
        )
    return said


def to_json(found: Iterable[Slope]) -> list[dict[str, Any]]:
    return [asdict(one) for one in found]
