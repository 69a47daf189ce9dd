"""The epochs of a data set that torch's loader reads: which one is next, and among how many agents it is dealt.

By the membership that the agent was told last (`plan.py`), an epoch at a time: those who begin an epoch have all of its
samples between them. *Losing an agent* costs what it had not read of the epochs that anybody had begun by then; the next
one is dealt to the living. *Joining*, and *going on from a backup*: from the next epoch that nobody has begun, or from the
one that the earlier attempt was in. Whoever begins an epoch before it hears of a change deals it as before; of that epoch
some samples are read twice or not at all.

Not for what a share is: `share.py`, `share_iterable.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from mpca.data.plan import Membership

__all__ = ["EpochPart", "Epochs"]


class EpochPart(NamedTuple):
    """One epoch of this agent: its rank among those who begin it."""

    epoch: int
    rank: int
    world_size: int


class Epochs:
    """`parts` goes on where it ended, so that a data set that is gone through again is so in its next epoch."""

    def __init__(self, agent: int, agents: int, epochs: int | None, membership: Membership | None = None) -> None:
        self.agent, self.agents = agent, agents
        self._epochs = epochs
        self._members = membership or Membership.of(agents)
        self._next = self._members.first(agent)
        #: Epoch that the caller is in, and 0: see `plan.Loss`. What it has of it is not told.
        self.position = (self._next, 0)
        #: Newest epoch of which something was asked for already.
        self.ahead = self._next

    def update_members(self, membership: Membership) -> None:
        """Take in that agents were lost or joined; counts from the next epoch on."""
        self._members = membership

    def parts(self) -> Iterator[EpochPart]:
        """So many as there are to be; without end if that is not said."""
        for _ in count() if self._epochs is None else range(self._epochs):
            epoch = self.ahead = max(self._next, self._members.first(self.agent))
            self._next = epoch + 1
            yield self._part(epoch)

    def _part(self, epoch: int) -> EpochPart:
        begin = self._members.begin(epoch)
        if self.agent in begin:
            return EpochPart(epoch, begin.index(self.agent), len(begin))
        return EpochPart(epoch, self.agent, self.agents)  # it was given up, and whoever did that will end it

    def coming(self) -> tuple[EpochPart, int]:
        """The next epoch, as the membership is now, and how many an iteration has; 1 if it has no end."""
        return self._part(max(self._next, self._members.first(self.agent))), 1 if self._epochs is None else self._epochs

    def handed(self, epoch: int) -> None:
        """The caller has something of that epoch."""
        self.position = (epoch, 0)
