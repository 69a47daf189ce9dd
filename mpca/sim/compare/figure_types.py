"""What a figure of a paper is: where it is printed, how it is made here, and the sheets, drawings and claims that come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mpca.sim.compare.plan import Progress
from mpca.sim.compare.settings import Conf
from mpca.sim.sheet import Sheet

__all__ = ["Bars", "Chart", "Claim", "Figure", "Shown", "Simulate"]

#: Simulates what a file asks for.
Simulate = Callable[[Conf], Progress]


@dataclass(frozen=True)
class Claim:
    """What a paper says of its figure, and whether it is so here."""

    said: str
    holds: bool | None
    """None: these runs were too short to tell."""
    found: str

    def line(self) -> str:
        """For a terminal."""
        verdict = {True: "As the paper", False: "BREAKS from the paper", None: "Undecided"}[self.holds]
        return f"{verdict}: {self.said}. Here: {self.found}."


@dataclass(frozen=True)
class Chart:
    """Lines over one axis; errors and other shares are percent."""

    title: str
    x_label: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    percent: bool = False
    log: bool = False
    """x is the logarithm to base 10 of what the axis shows."""


@dataclass(frozen=True)
class Bars:
    """Lanes of bars over seconds: lane, start, end, shard or None, text."""

    title: str
    lanes: tuple[str, ...]
    bars: tuple[tuple[int, float, float, int | None, str], ...]


@dataclass(frozen=True)
class Shown:
    """What a figure prints and draws."""

    sheets: Sequence[Sheet]
    drawn: Sequence[Chart | Bars]
    claims: Sequence[Claim]


@dataclass(frozen=True)
class Figure:
    """One table or figure of a paper."""

    source: str
    how: str
    """What of it is computed by formulas, and what is simulated."""
    make: Callable[[Simulate], Shown]
    folder: str = ""
    """Of the runs' results; empty: nothing is trained."""

    @property
    def line(self) -> str:
        """Which paper and section, and how."""
        return f"{self.source}. {self.how}"
