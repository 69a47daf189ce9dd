"""Which optimiser step ends an update, when an agent has several optimisers (a GAN's two, or one for some layers each).

An update is a *round*: each optimiser has stepped since the last round ended. It ends with a step of the optimiser whose first
step came last. So the exchange never comes between two optimisers' steps of one batch, where a graph may be alive that used the
parameters. Five steps of a critic and one of its generator are one update.

An optimiser rests when it takes no step while the others take `RESTS_AFTER` steps (it begins after a warm-up, or another one
has replaced it). Rounds then end without it until it steps again; an agent that waited for it would be late for ever.

No torch, no parameters: optimisers are keys here.
"""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["RESTS_AFTER", "Rounds"]

#: Steps of others in a row: more than a critic takes for one step of its generator in usual training.
RESTS_AFTER = 32


class Rounds:
    """The rounds of one agent."""

    def __init__(self) -> None:
        self._idle: dict[Hashable, int] = {}  # optimiser -> steps of others since its own last step
        self._order: list[Hashable] = []  # optimisers that do not rest, in the order of their first steps
        self._missing: set[Hashable] = set()  # optimisers that the round waits for

    def add(self, optimizer: Hashable) -> None:
        """Add an optimiser; the present round waits for it."""
        self._idle[optimizer] = 0
        self._missing.add(optimizer)

    def rest(self, optimizer: Hashable) -> None:
        """Let rounds end without an optimizer until it steps again: another one has its parameters now."""
        self._idle[optimizer] = RESTS_AFTER
        self._missing.discard(optimizer)
        if optimizer in self._order:
            self._order.remove(optimizer)

    def stepped(self, optimizer: Hashable) -> bool:
        """Count a step of an optimiser, and return whether it ends an update."""
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
