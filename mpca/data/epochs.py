"""The epochs of a data set that torch's loader reads: which epoch is next, and how many agents share it.

An agent decides once per epoch, by the newest list of readers that it has received (`plan.py`). The agents that begin an epoch
share all of its samples.

* *An agent is lost*: its unread samples of all epochs that any agent had begun are not read. The living agents share the
  next epoch.
* *An agent joins*: it takes part from the next epoch that no agent has begun.
* *The run resumes from a backup*: it begins with the epoch that the earlier attempt was in.
* *An agent begins an epoch before it hears of a change*: it takes its share by the old list. Some samples of that
  epoch are then read twice or not at all.

Not for what a share is: `share.py`, `share_iterable.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from mpca.data.plan import Readers

__all__ = ["EpochPart", "Epochs"]


class EpochPart(NamedTuple):
    """One epoch of this agent: its rank among the agents that begin the epoch, and their number."""

    epoch: int
    rank: int
    world_size: int


class Epochs:
    """Counts epochs. A second call of `parts` continues with the next epoch, so a second iteration reads new epochs."""

    def __init__(
        self, agent: int, agents: int, epochs: int | None, readers: Readers | None = None, steady: bool = False
    ) -> None:
        self.agent, self.agents = agent, agents
        #: Whether `coming` tells of an epoch of all agents, whoever is lost: for a trainer, which asks for lengths once.
        self._steady = steady
        self._epochs = epochs
        self._readers = readers or Readers.of(agents)
        self._next = self._readers.first(agent)
        #: The caller's epoch, and 0 for `plan.Loss.done`: how far it is inside of the epoch is not reported.
        self.position = (self._next, 0)
        #: Newest epoch of which samples were requested.
        self.ahead = self._next

    def update_readers(self, readers: Readers) -> None:
        """Take a new list of readers, from the next epoch on."""
        self._readers = readers

    def parts(self) -> Iterator[EpochPart]:
        """Yield as many epochs as the constructor was given; without end for None."""
        for _ in count() if self._epochs is None else range(self._epochs):
            epoch = self.ahead = max(self._next, self._readers.first(self.agent))
            self._next = epoch + 1
            yield self._part(epoch)

    def _part(self, epoch: int) -> EpochPart:
        begin = self._readers.begin(epoch)
        if self.agent in begin:
            return EpochPart(epoch, begin.index(self.agent), len(begin))
        return EpochPart(epoch, self.agent, self.agents)  # the driver counts this agent as lost, and will end it

    def coming(self) -> tuple[EpochPart, int]:
        """The next epoch by the present list of readers, and the number of epochs of an iteration; 1 if it has no end."""
        epoch = max(self._next, self._readers.first(self.agent))
        part = EpochPart(epoch, self.agent, self.agents) if self._steady else self._part(epoch)
        return part, 1 if self._epochs is None else self._epochs

    def handed(self, epoch: int) -> None:
        """Note that the caller has received samples of that epoch."""
        self.position = (epoch, 0)
