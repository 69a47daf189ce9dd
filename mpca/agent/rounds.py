"""Which step of which optimiser ends an update, when an agent has several (a GAN's two, or one of some layers each).

An update is a *round*: each optimiser has stepped since the last one ended. It ends with the step of the optimiser that was
the last to take its first step, so that the exchange never comes between two optimisers' steps of one batch, where a graph
may be alive that the changed parameters were used in. Five steps of a critic and one of its generator are one update.

An optimiser that does not step while the others take `RESTS_AFTER` steps (one that begins after a warm-up, or that another
has replaced) rests, and rounds end without it until it steps again: an agent that waited for it would be late for ever.

No torch, no parameters: optimisers are keys here.
"""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["RESTS_AFTER", "Rounds"]

#: Steps of others, in a row. More than critics are given for one step of their generator once training is under way.
RESTS_AFTER = 32


class Rounds:
    """Of one agent."""

    def __init__(self) -> None:
        self._idle: dict[Hashable, int] = {}  # steps that others took since its own last
        self._order: list[Hashable] = []  # those that step, by their first step
        self._missing: set[Hashable] = set()  # those that the round waits for

    def add(self, optimizer: Hashable) -> None:
        """One more, which the round waits for."""
        self._idle[optimizer] = 0
        self._missing.add(optimizer)

    def stepped(self, optimizer: Hashable) -> bool:
        """Whether this step of one that was added ends an update."""
        if len(self._idle) == 1:
            return True
        for other in self._idle:
            self._idle[other] += 1
            if self._idle[other] >= RESTS_AFTER and other != optimizer:
                self._missing.discard(other)
                if other in self._order:
                    self._order.remove(other)
        self._idle[optimizer] = 0
        if optimizer not in self._order:
            self._order.append(optimizer)
        self._missing.discard(optimizer)
        if self._missing or self._order[-1] != optimizer:
            return False
        self._missing.update(self._order)
        return True
