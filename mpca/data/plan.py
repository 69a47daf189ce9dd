"""Who reads what of an epoch: a pure function that every agent computes for itself, without a word between them.

A split is cut into units of consecutive records, each one ranged read. The units of an epoch are shuffled by (seed, epoch)
and dealt to the agents that begin it, so that together they read every record once. An agent shuffles the records
again in a window (`stream_reader.py`).

*Losing an agent*: the units of its share that it had not begun when it was last heard of go to the living, at the end of
their shares. What that costs: records of the one unit that it was in the middle of, and of its window, may be missing from
that epoch; what it read after it was last heard of is read twice; and an agent that has ended that epoch does not go
back, so what would fall to it is not read in that epoch. *Joining*: a new agent takes part from the next epoch that nobody
has begun; the epochs before are the others' alone.

Not for reading, and not for how agents hear of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

__all__ = ["UNIT_RECORDS", "Loss", "Membership", "Unit", "plan", "units_of"]

#: Records of one unit. ImageNet's are 110 KB: 3.5 MB a read, past the size where HDFS or a disk cares about seeks.
UNIT_RECORDS = 32


@dataclass(frozen=True, slots=True)
class Unit:
    """Consecutive records of a shard; `first` counts over the split."""

    shard: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Loss:
    """An agent that was lost, and where it was when it was last heard of."""

    agent: int
    epoch: int
    begun: int  # units of its share of that epoch


@dataclass(frozen=True, slots=True)
class Membership:
    """Who takes part, as one agent knows it."""

    since: tuple[tuple[int, int], ...]  # (agent, first epoch that it takes part in); one that comes back has a second entry
    losses: tuple[Loss, ...] = ()  # in the order in which they happened

    @classmethod
    def of(cls, agents: int) -> Membership:
        """All of them from the beginning."""
        return cls(tuple((agent, 0) for agent in range(agents)))

    def lose(self, agent: int, epoch: int, begun: int) -> Membership:
        """Without that agent from now on."""
        return replace(self, losses=(*self.losses, Loss(agent, epoch, begun)))

    def join(self, agent: int, epoch: int) -> Membership:
        """With that agent from that epoch on, which comes after the one that it was lost in, if it was."""
        return replace(self, since=(*self.since, (agent, epoch)))

    def begin(self, epoch: int) -> list[int]:
        """The agents that begin an epoch."""
        begun = {agent for agent, since in self.since if since <= epoch and not self._lost_between(agent, since, epoch)}
        return sorted(begun)

    def _lost_between(self, agent: int, since: int, epoch: int) -> bool:
        return any(loss.agent == agent and since <= loss.epoch < epoch for loss in self.losses)

    def lost_in(self, epoch: int) -> tuple[Loss, ...]:
        """The losses that happened in an epoch, in order."""
        return tuple(loss for loss in self.losses if loss.epoch == epoch)


def units_of(starts: Sequence[int], records: int = UNIT_RECORDS) -> tuple[Unit, ...]:
    """The units of a split; `starts` as in `index.Index`.

    Example:
        >>> [(unit.shard, unit.first, unit.count) for unit in units_of([0, 3, 5], records=2)]
        [(0, 0, 2), (0, 2, 1), (1, 3, 2)]
    """
    return tuple(
        Unit(shard, at, min(records, starts[shard + 1] - at))
        for shard in range(len(starts) - 1)
        for at in range(starts[shard], starts[shard + 1], records)
    )


def plan(
    units: Sequence[Unit],
    *,
    seed: int,
    epoch: int,
    agents: Sequence[int],
    lost: Sequence[Loss] = (),
    sticky: bool = False,
) -> dict[int, tuple[Unit, ...]]:
    """The share of each agent of an epoch, in the order in which it reads it. Lost agents keep what they had begun.

    Args:
        agents: those that begin the epoch, in any order.
        lost: those of them that were lost in it, in the order in which they were.
        sticky: deal all epochs alike, so that an agent finds its records in its local copy; else anew each epoch, which
            mixes better but gives a copy on one of K agents a chance of one in K.

    Example:
        >>> cut = units_of([0, 4], records=1)
        >>> whole = plan(cut, seed=1, epoch=0, agents=[0, 1])
        >>> after = plan(cut, seed=1, epoch=0, agents=[0, 1], lost=[Loss(1, 0, begun=1)])
        >>> after == {0: whole[0] + whole[1][1:], 1: whole[1][:1]}
        True
    """
    everybody = sorted(agents)
    # The leading number keeps the streams apart: SeedSequence takes (1, 0) and (1, 0, 0) for the same.
    order = np.random.default_rng((3, seed) if sticky else (4, seed, epoch)).permutation(len(units)).tolist()
    shares = {agent: [units[i] for i in order[place :: len(everybody)]] for place, agent in enumerate(everybody)}
    if sticky:
        for agent, share in shares.items():
            np.random.default_rng((5, seed, epoch, agent)).shuffle(share)  # type: ignore[arg-type]
    living = list(everybody)
    for loss in lost:
        rest, shares[loss.agent] = shares[loss.agent][loss.begun :], shares[loss.agent][: loss.begun]
        living.remove(loss.agent)
        for place, agent in enumerate(living):
            shares[agent] += rest[place :: len(living)]
    return {agent: tuple(share) for agent, share in shares.items()}
