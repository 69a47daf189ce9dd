"""What was logged and evaluated over time, a chart a metric: agents thin, their mean thick, evaluations as dots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeGuard

from mpca.driver.objectives import Target
from mpca.report import svg
from mpca.report.blocks import section
from mpca.report.chart import SECONDS, Unit, figure
from mpca.report.load import RunRecords

__all__ = ["LARGEST", "Curve", "Points", "curves_of", "sections"]

_POINTS, _OF_AGENTS = 300, 6000  # of a line at most, and of all agents together
_LINES = 64  # of agents in a chart at most
_CHARTS = 24  # on the page at most; the embedded data has all
LARGEST = 1e300  # sums of larger numbers overflow

Points = list[tuple[float, float]]  # seconds of training, value


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric. Long lines are means over equal times."""

    name: str
    agents: dict[int, Points]
    mean: Points  # over agents
    evaluations: Points  # of the joint model, where they have a number of that name
    target: float | None = None  # a value that ends the run


def curves_of(records: RunRecords) -> list[Curve]:
    """The curves of a run, in the order in which its metrics came first."""
    seconds = records.last_t - min((one.t for one in records.metrics), default=0.0)
    most = max(_OF_AGENTS // max(len({one.agent for one in records.metrics}), 1), 20)
    width, width_of_agents = (max(1.0, seconds / points) for points in (_POINTS, min(_POINTS, most)))
    by_name: dict[str, dict[int, Points]] = {}
    for one in records.metrics:
        for name, value in one.metrics.items():
            if _drawable(value):
                by_name.setdefault(name, {}).setdefault(one.agent, []).append((one.t, value))
    evaluated: dict[str, Points] = {}
    for done in records.evaluations:
        for name, value in {"error": done.error, "loss": done.loss, **done.metrics}.items():
            if _drawable(value):
                evaluated.setdefault(name, []).append((done.t, value))
                if name != "error":  # that has a chart of its own
                    by_name.setdefault(name, {})
    goals = [Target.parse(one) for one in records.attempts[-1].targets] if records.attempts else []
    targets = {one.metric: one.bound for one in goals if _drawable(one.bound)}
    found = []
    for name, raw in by_name.items():
        agents = {agent: list(_thinned(points, width_of_agents)) for agent, points in sorted(raw.items())}
        together = sorted(point for points in agents.values() for point in points)
        found.append(Curve(name, agents, list(_thinned(together, 2 * width)), evaluated.get(name, []), targets.get(name)))
    return found


def _drawable(value: float | None) -> TypeGuard[float]:
    """Whether a number does not leave a gap, as those do that are not finite."""
    return value is not None and abs(value) <= LARGEST


def _thinned(points: Points, width: float) -> Iterator[tuple[float, float]]:
    """Means over `width` seconds."""
    by_time: dict[int, Points] = {}
    for point in points:
        by_time.setdefault(int(point[0] // width), []).append(point)
    for some in by_time.values():
        yield fmean(t for t, _ in some), fmean(value for _, value in some)


def sections(
    curves: Sequence[Curve], marks: Sequence[tuple[float, str]], bands: Sequence[tuple[float, float, str]], note: str
) -> list[str]:
    """A section for each curve.

    Args:
        curves: of the run.
        marks: (seconds, text) of agents that were lost, and of ends of the evaluator.
        bands: (seconds, seconds, text) of pauses.
        note: what the note of the first one ends with.
    """
    left_out = ", ".join(one.name for one in curves[_CHARTS:])
    drawn = [_section(one, marks, bands, "" if n else note) for n, one in enumerate(curves[:_CHARTS])]
    return [*drawn, section("More metrics", f"Not drawn; they are in records.jsonl: {left_out}.")] if left_out else drawn


def _section(curve: Curve, marks: Sequence[tuple[float, str]], bands: Sequence[tuple[float, float, str]], more: str) -> str:
    count = len(curve.agents)
    some = list(curve.agents)[:: -(-count // _LINES)] if count > 1 else []
    lines = [svg.Line(f"agent {agent}", "thin s0", curve.agents[agent]) for agent in some]
    entries = []
    if curve.agents:
        mean = "mean of the agents" if lines else f"agent {next(iter(curve.agents))}"
        lines.append(svg.Line(mean, "thick s0", curve.mean))
        entries.append(("s0", mean))
    if curve.evaluations:
        titles = [f"joint model: {value:.4g} at {t:.1f} s" for t, value in curve.evaluations]
        lines.append(svg.Line("joint model, evaluated", "s1", curve.evaluations, titles))
        entries.append(("s1", "joint model, evaluated"))
    chart = figure(
        f"{curve.name} over time",
        lines,
        SECONDS,
        Unit(),
        entries,
        level=None if curve.target is None else (curve.target, f"target {curve.target:g}"),
        marks=marks,
        bands=bands,
        height=240,
    )
    notes = (
        "Of the joint model, one dot an evaluation.",
        "Logged by one agent alone.",
        "Logged by the agents; a thin line is one.",
    )
    note = notes[min(count, 2)] + (f" Drawn are {len(some)} of {count:,}." if 1 < len(some) < count else "") + more
    return section(curve.name, note, chart)
