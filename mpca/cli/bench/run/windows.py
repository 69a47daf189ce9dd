"""Parts of a run with exchanges and without, and the steps that lie in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from mpca.errors import MpcaError

__all__ = ["LEAST_STEPS", "LEAST_WINDOW_S", "Window", "step_times"]

LEAST_STEPS = 5  # of a window
LEAST_WINDOW_S = 4.0


@dataclass
class Window:
    """A part of the run with exchanges or without, in wall clock."""

    exchanging: bool
    start: float
    end: float = 0.0
    pause_s: float = 0.0  # of agent 0, in it
    jvm_s: float = 0.0
    cycles: int = 0


def step_times(
    steps: Sequence[tuple[float, float]], windows: Sequence[Window], exchanging: bool
) -> tuple[list[float], list[float]]:
    """Wall clock and CPU seconds of each step that lies wholly in a window of this sort."""
    inside = [
        (end[0] - start[0], end[1] - start[1])
        for start, end in pairwise(steps)
        if any(one.exchanging == exchanging and one.start <= start[0] and end[0] <= one.end for one in windows)
    ]
    if not inside:
        raise MpcaError(f"no step lies in a window as a whole: steps={len(steps)}, exchanging={exchanging}")
    return [wall for wall, _ in inside], [cpu for _, cpu in inside]
