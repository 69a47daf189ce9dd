"""Who reads what of an epoch: a pure function that every agent computes for itself, of the membership that all are told.

A split is cut into units of consecutive records, each one ranged read. The units of an epoch are shuffled by (seed, epoch)
and dealt to the agents that begin it, so that together they read every record once. An agent shuffles the records
again in a window (`stream_reader.py`).

*On HDFS* agents get first what lies on their own hosts: all shares are as large as otherwise, and what nobody has at home, or
only those whose shares are full, is dealt to the others. Which hosts hold a shard is asked once an attempt, and where an
agent lives counts from an epoch on that nobody has begun; both are part of the membership, since all have to deal alike.

*Losing an agent*: the units of its share that it had not finished when it was last heard of go to the living, at the end of
their shares. What that costs: records that it had handed out since, or out of units of which others still lay in its
window, are read twice. And an agent that has read ahead to the end of that epoch does not go back, so what would fall to
it is not read in that epoch, nor is what is left when all who began it are lost. *Joining*: a new agent takes part from
the next epoch that nobody has begun, at once; the epochs before are the others' alone. *Going on from a backup*: what the
earlier attempt had not finished of its epochs is dealt to the agents of this one, however many they are. Whoever begins an
epoch before it hears of a change leaves out what it has read of it already; others may read that again.

Not for reading, and not for how agents hear of it (`wire.messages.Members`, `driver/readers.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

__all__ = ["UNIT_RECORDS", "Loss", "Membership", "Unit", "plan", "shares", "units_of"]

#: Records of one unit. ImageNet's are 110 KB: 3.5 MB a read, past the size where HDFS or a disk cares about seeks.
UNIT_RECORDS = 32
_ALL = 1 << 62  # units: more than any share has


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
    done: int  # units of its share of that epoch that it had finished, from the first one on
    last: int = -1  # newest epoch that anybody had begun, if that is a later one: its share of those is dealt anew too


@dataclass(frozen=True, slots=True)
class Membership:
    """Who takes part in one attempt of a run."""

    agents: int  # that the attempt wants: units are cut for so many
    since: tuple[tuple[int, int], ...]  # (agent, first epoch that it takes part in); one that comes back has a second entry
    losses: tuple[Loss, ...] = ()  # in the order in which they happened
    before: tuple[Membership, ...] = ()  # the attempts that this one goes on from, oldest first: all of their agents are lost
    homes: tuple[tuple[int, int, str], ...] = ()  # (agent, epoch, host): where it lives, from that epoch on
    places: tuple[tuple[str, ...], ...] = ()  # of each shard the hosts that hold it; empty: not known

    @classmethod
    def of(cls, agents: int, first: int = 0) -> Membership:
        """All of them from the beginning."""
        return cls(agents, tuple((agent, first) for agent in range(agents)))

    def lose(self, agent: int, epoch: int, done: int, last: int = -1) -> Membership:
        """Without that agent from now on."""
        return replace(self, losses=(*self.losses, Loss(agent, epoch, done, last)))

    def join(self, agent: int, epoch: int) -> Membership:
        """With that agent from that epoch on, which comes after all that were begun when it was lost, if it was."""
        return replace(self, since=(*self.since, (agent, epoch)))

    def settle(self, agent: int, epoch: int, host: str) -> Membership:
        """With that agent at home on that host, from an epoch on that nobody has begun."""
        kept = tuple(one for one in self.homes if one[:2] != (agent, epoch))
        return replace(self, homes=(*kept, (agent, epoch, host)))

    def home(self, agent: int, epoch: int | None = None) -> str:
        """Its host in an epoch, or its newest one; empty: not known."""
        known = [(since, host) for one, since, host in self.homes if one == agent and (epoch is None or since <= epoch)]
        return max(known, default=(0, ""))[1]

    def near(self, epoch: int) -> dict[int, frozenset[int]]:
        """Of each agent that begins an epoch, the shards that lie on its host."""
        on: dict[str, set[int]] = {}
        for shard, hosts in enumerate(self.places):
            for host in hosts:
                on.setdefault(host, set()).add(shard)
        return {agent: frozenset(on.get(self.home(agent, epoch), ())) for agent in self.begin(epoch)}

    def go_on(self, agents: int, left: Mapping[int, tuple[int, int]], last: int) -> Membership:
        """The beginning of a further attempt; `left` is where those who took part were, `last` the newest epoch begun."""
        ended = replace(self, before=())
        # Who was in a later epoch goes first, so that nothing of an earlier one falls to it.
        for agent, (epoch, done) in sorted(left.items(), key=lambda one: (-one[1][0], one[0])):
            ended = ended.lose(agent, epoch, done, last)
        first = min((epoch for epoch, _ in left.values()), default=last + 1)
        return replace(Membership.of(agents, first), before=(*self.before, ended)).forget(first)

    def first(self, agent: int) -> int:
        """The epoch with which a process that plays this agent begins."""
        return max((since for one, since in self.since if one == agent), default=0)

    def begin(self, epoch: int) -> list[int]:
        """The agents that begin an epoch."""
        begun = {agent for agent, since in self.since if since <= epoch and not self._lost_between(agent, since, epoch)}
        return sorted(begun)

    def lost_in(self, epoch: int) -> tuple[Loss, ...]:
        """What the losses mean for an epoch that their agents began, in order."""
        seen = []
        for loss in self.losses:
            if loss.epoch == epoch:
                seen.append(loss)
            elif loss.epoch > epoch:  # had ended it: what is lost by others later does not fall to it
                seen.append(replace(loss, epoch=epoch, done=_ALL))
            elif loss.last >= epoch:
                seen.append(replace(loss, epoch=epoch, done=0))
        return tuple(seen)

    @property
    def last(self) -> int:
        """The newest epoch that is known to have been begun, -1 before any."""
        return max((max(loss.epoch, loss.last) for one in (*self.before, self) for loss in one.losses), default=-1)

    def forget(self, epoch: int) -> Membership:
        """The same from that epoch on, without what only those before it need."""
        since = [(agent, max(s for a, s in self.since if a == agent and s <= epoch)) for agent in self.begin(epoch)]
        later = [one for one in self.since if one[1] > epoch]
        losses = tuple(loss for loss in self.losses if max(loss.epoch, loss.last) >= epoch)
        newest = {
            agent: max(s for a, s, _ in self.homes if a == agent and s <= epoch) for agent, s, _ in self.homes if s <= epoch
        }
        homes = tuple(one for one in self.homes if one[1] > epoch or one[1] == newest[one[0]])
        before = tuple(one for one in self.before if one.last >= epoch)
        return replace(self, since=(*since, *later), losses=losses, before=before, homes=homes)

    def to_dict(self) -> dict[str, Any]:
        """Lists, numbers and texts, for a message or a backup."""
        hosts = sorted({host for one in self.places for host in one})
        number = {host: index for index, host in enumerate(hosts)}
        where = {"hosts": hosts, "places": [[number[host] for host in one] for one in self.places]}
        return {
            "agents": self.agents,
            "since": [list(one) for one in self.since],
            "losses": [[one.agent, one.epoch, one.done, one.last] for one in self.losses],
            "before": [one.to_dict() for one in self.before],
            **({"homes": [list(one) for one in self.homes]} if self.homes else {}),
            **(where if self.places else {}),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Membership:
        """Raises KeyError, TypeError or ValueError when it is none."""
        if not isinstance(value, Mapping):
            raise TypeError(f"not a map: {str(value)[:40]}")
        hosts = dict(enumerate(value.get("hosts", ())))
        return cls(
            int(value["agents"]),
            tuple((int(agent), int(epoch)) for agent, epoch in value["since"]),
            tuple(Loss(*map(int, one)) for one in value["losses"]),
            tuple(cls.from_dict(one) for one in value["before"]),
            tuple((int(agent), int(epoch), str(host)) for agent, epoch, host in value.get("homes", ())),
            tuple(tuple(str(hosts[host]) for host in one) for one in value.get("places", ())),
        )

    def _lost_between(self, agent: int, since: int, epoch: int) -> bool:
        return any(loss.agent == agent and since <= loss.epoch and max(loss.epoch, loss.last) < epoch for loss in self.losses)


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
    near: Mapping[int, frozenset[int]] | None = None,
) -> dict[int, tuple[Unit, ...]]:
    """The share of each agent of an epoch, in the order in which it reads it. Lost agents keep what they had finished.

    Args:
        agents: those that begin the epoch, in any order.
        lost: those of them that were lost in it, in the order in which they were.
        sticky: deal all epochs alike, so that an agent finds its records in its local copy; else anew each epoch, which
            mixes better but gives a copy on one of K agents a chance of one in K.
        near: by agent the shards that it is to get units of first.

    Example:
        >>> cut = units_of([0, 4], records=1)
        >>> whole = plan(cut, seed=1, epoch=0, agents=[0, 1])
        >>> after = plan(cut, seed=1, epoch=0, agents=[0, 1], lost=[Loss(1, 0, done=1)])
        >>> after == {0: whole[0] + whole[1][1:], 1: whole[1][:1]}
        True
    """
    dealt = _whole(units, seed, epoch, agents, sticky, near or {})
    _move(dealt, lost)
    return {agent: tuple(share) for agent, share in dealt.items()}


def shares(
    cut: Callable[[int], Sequence[Unit]], members: Membership, *, seed: int, epoch: int, sticky: bool = False
) -> dict[int, tuple[Unit, ...]]:
    """`plan` by a membership, with what earlier attempts left of the epoch. `cut` gives the units for so many agents."""
    rest: list[Unit] | None = None  # of an epoch that an earlier attempt had begun
    for one in (*members.before, members):
        if rest is None and one is not members and one.last < epoch:
            continue
        agents = one.begin(epoch)
        if not agents and one is not members:
            continue
        if rest is None:
            dealt = _whole(cut(one.agents), seed, epoch, agents, sticky, one.near(epoch))
        else:
            dealt = {agent: rest[index :: len(agents)] for index, agent in enumerate(agents)}
        rest = _move(dealt, one.lost_in(epoch))
    return {agent: tuple(share) for agent, share in dealt.items()}


def _whole(
    units: Sequence[Unit], seed: int, epoch: int, agents: Iterable[int], sticky: bool, near: Mapping[int, frozenset[int]]
) -> dict[int, list[Unit]]:
    """A whole epoch, dealt to those that begin it."""
    everybody = sorted(agents)
    # The leading number keeps the streams apart: SeedSequence takes (1, 0) and (1, 0, 0) for the same.
    order = np.random.default_rng((3, seed) if sticky else (4, seed, epoch)).permutation(len(units)).tolist()
    shuffled = [units[i] for i in order]
    if len({near.get(agent, frozenset()) for agent in everybody}) > 1:
        dealt = _deal_near(shuffled, everybody, near)
    else:  # nobody is nearer to anything than the others
        dealt = {agent: shuffled[index :: len(everybody)] for index, agent in enumerate(everybody)}
    if sticky:
        for agent, share in dealt.items():
            np.random.default_rng((5, seed, epoch, agent)).shuffle(share)
    return dealt


def _deal_near(units: Sequence[Unit], agents: Sequence[int], near: Mapping[int, frozenset[int]]) -> dict[int, list[Unit]]:
    """Shares of the usual sizes, in the order of `units`, each with as much as it goes of what is near to its agent.

    First the units that are near to the fewest, each to the agent with the most room; what finds no room near is dealt
    at the end, likewise. The best of all ways is a flow; of sixty placements drawn by chance this one gave 97 % of it or more.
    """
    room = {agent: len(range(index, len(units), len(agents))) for index, agent in enumerate(agents)}
    close = {shard: [agent for agent in agents if shard in near.get(agent, ())] for shard in {unit.shard for unit in units}}
    taken: dict[int, list[int]] = {agent: [] for agent in agents}

    def give(index: int, among: Sequence[int]) -> bool:
        agent = max((one for one in among if room[one]), key=lambda one: (room[one], -one), default=None)
        if agent is None:
            return False
        room[agent] -= 1
        taken[agent].append(index)
        return True

    elsewhere = []
    for index in sorted(range(len(units)), key=lambda index: len(close[units[index].shard])):
        if not give(index, close[units[index].shard]):
            elsewhere.append(index)
    for index in elsewhere:
        give(index, agents)
    return {agent: [units[index] for index in sorted(places)] for agent, places in taken.items()}


def _move(dealt: dict[int, list[Unit]], lost: Iterable[Loss]) -> list[Unit]:
    """Give what lost agents had not finished to the living, in place; the answer is what nobody is left for."""
    living = list(dealt)
    rest: list[Unit] = []
    for loss in lost:
        if loss.agent not in living:  # did not begin it
            continue
        rest, dealt[loss.agent] = dealt[loss.agent][loss.done :], dealt[loss.agent][: loss.done]
        living.remove(loss.agent)
        for index, agent in enumerate(living):
            dealt[agent] += rest[index :: len(living)]
    return [] if living else rest
