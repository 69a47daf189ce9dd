"""A simulated agent's trainer that learns from data: R runs of one net, stacked in its flat vector (`models.stacked`).

When something happens does not depend on the numbers. So runs that differ by learning rate or model seed can share one
schedule of events: driver, agents and network see one vector, whose elements are R numbers each.

What the runs share beyond the schedule: the guard against snapshots that are not finite. A run that diverges is therefore set
to 0 in that agent before the snapshot, and said to have diverged; the others go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mpca.methods import How
from mpca.sim.science.batches import Batches
from mpca.sim.trainers import Flat

if TYPE_CHECKING:  # torch is imported when a run is simulated, and not when one is refused
    from mpca.models.stacked import Stack

__all__ = ["StackedTrainer"]


class StackedTrainer(Flat):
    """`Flat.x` is brought up to date a shard at a time, when the shard is looked at.

    Args:
        bounds: shard edges, in elements of the flat vector: multiples of R.
        parameters: of the flat vector; a multiple of R.
        how: what an arrival does.
        stack: the runs, at x_0.
        batches: what they read.
    """

    def __init__(self, bounds: list[int], parameters: int, how: How, stack: Stack, batches: Batches) -> None:
        super().__init__(bounds, parameters, how)
        self.runs, self._stack, self._batches = stack.runs, stack, batches
        self._edges = [edge // stack.runs for edge in bounds]  # in elements of a run
        x0 = np.empty(bounds[-1], np.float32)
        stack.read(0, stack.elements, x0)
        self.begin_at(x0)
        self.updates = 0

    def advance(self, updates: int, pulls: tuple[tuple[int, float], ...]) -> None:
        """As `SimTrainer.advance`, update by update."""
        joined = self._joined(pulls)
        pulled, tilts = ([], joined) if self._how is How.TILT else (joined, [])
        for _ in range(updates):
            for first, last, alpha in pulled:
                self._stack.pull(first, last, alpha)
            self.loss = self._stack.step(*self._batches.take(), tilts)
        self.updates += updates

    def pull(self, pulls: tuple[tuple[int, float], ...]) -> None:
        """Make these pulls (shard, alpha) once, without an update."""
        for first, last, alpha in self._joined(pulls):
            self._stack.pull(first, last, alpha)

    def snapshot(self, shard: int, out: np.ndarray) -> None:
        self._fetch(shard)
        super().snapshot(shard, out)

    def install(self, shard: int, data: np.ndarray, version: int, mode: str) -> None:
        self._fetch(shard)
        super().install(shard, data, version, mode)
        first, last = self._edges[shard : shard + 2]
        self._stack.write(first, last, self.x[self.bounds[shard] : self.bounds[shard + 1]])
        if shard in self._targets:
            self._stack.aim(*self._parameters_of(shard), self._targets[shard])

    def reset_optimizer(self) -> None:
        self._stack.reset_optimizer()

    def _joined(self, pulls: tuple[tuple[int, float], ...]) -> list[tuple[int, int, float]]:
        """First and last element of a run, and alpha; shards beside each other are one pull."""
        joined: list[tuple[int, int, float]] = []
        for shard, alpha in pulls:
            first, last = self._parameters_of(shard)
            if joined and joined[-1][1:] == (first, alpha):
                first = joined.pop()[0]
            joined.append((first, last, alpha))
        return joined

    def _parameters_of(self, shard: int) -> tuple[int, int]:
        span = self._spans[shard]
        return span.start // self._stack.runs, span.stop // self._stack.runs

    def _fetch(self, shard: int) -> None:
        first, last = self._edges[shard : shard + 2]
        self._stack.read(first, last, self.x[self.bounds[shard] : self.bounds[shard + 1]])
