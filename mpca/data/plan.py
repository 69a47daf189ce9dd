"""Which agent reads which records in an epoch: a pure function, which every agent applies to the same list of readers.

A split is cut into units of consecutive records; one ranged read fetches a unit. The units of an epoch are shuffled by
(seed, epoch) and dealt to the agents that begin the epoch, so that together they read every record once. An agent shuffles
its records again in a window (`stream_reader.py`).

*On HDFS* an agent first gets units of shards on its own host. All shares keep their usual sizes. Other agents get the units
that are on no agent's host, and those for which the agents there have no room. The driver asks once per attempt which hosts
hold a shard. An agent's host counts from an epoch on that no agent has begun. Both are part of `Readers`, since all
agents must compute the same plan.

*An agent is lost*: the living agents get the units of its share that it had not finished by its last report, at the end of
their shares. Some records are then read twice: those that it handed out after its report, and those that it handed out from
unfinished units. Some are not read in that epoch: an agent that has read ahead to the end of the epoch does not go back for
its new units, and no agent is left for them when all that began the epoch are lost.

*An agent joins*: it takes part from the next epoch that no agent has begun. The other agents read the epochs before it.

*The run resumes from a backup*: the units that the earlier attempt had not finished in its epochs are dealt to the agents of
the new attempt, whatever their number.

*An agent begins an epoch before it hears of a change*: it changes to the new plan, and skips units that it has read already.
Other agents may read those units again.

Not for reading, and not for how agents receive the list (`wire.messages.ReadersChanged`, `driver/reader_tracker.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

__all__ = ["UNIT_RECORDS", "Loss", "Readers", "Unit", "plan", "shares", "units_of"]

#: Records of one unit. ImageNet's records have 110 KB, so a read is 3.5 MB: large enough that seeks cost HDFS or a disk little.
UNIT_RECORDS = 32
_ALL = 1 << 62  # units: more than any share has


@dataclass(frozen=True, slots=True)
class Unit:
    """`count` consecutive records of a shard; `first` is the first one's number in the split."""

    shard: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Loss:
    """An agent that was lost, and its position by its last report."""

    agent: int
    epoch: int
    done: int  # number of units that it had finished in that epoch, counted from the beginning of its share
    last: int = -1  # newest epoch that any agent had begun, if later than `epoch`; its shares up to there are dealt anew too


def _newest(entries: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The newest epoch of each agent."""
    newest: dict[int, int] = {}
    for agent, since in entries:
        newest[agent] = max(since, newest.get(agent, since))
    return newest


@dataclass(frozen=True, slots=True)
class Readers:
    """The agents that read the data in one attempt of a run, the epochs in which they do, and their losses."""

    agents: int  # number of agents that the attempt wants; it decides how units are cut
    since: tuple[tuple[int, int], ...]  # (agent, first epoch that it takes part in); a second entry for one that came back
    losses: tuple[Loss, ...] = ()  # in the order in which they happened
    before: tuple[Readers, ...] = ()  # earlier attempts that this one resumes, oldest first; all of their agents are lost
    homes: tuple[tuple[int, int, str], ...] = ()  # (agent, epoch, host): the agent's host from that epoch on
    shard_hosts: tuple[tuple[str, ...], ...] = ()  # by shard, the hosts that hold it; empty: not known

    @classmethod
    def of(cls, agents: int, first: int = 0) -> Readers:
        """All agents read, from epoch `first` on."""
        return cls(agents, tuple((agent, first) for agent in range(agents)))

    def lose(self, agent: int, epoch: int, done: int, last: int = -1) -> Readers:
        """The list without that agent, from now on; arguments as in `Loss`."""
        return replace(self, losses=(*self.losses, Loss(agent, epoch, done, last)))

    def join(self, agent: int, epoch: int) -> Readers:
        """The list with that agent from `epoch` on.

        If the agent was lost before, `epoch` must come after all epochs that any agent had begun by then.
        """
        return replace(self, since=(*self.since, (agent, epoch)))

    def settle(self, agent: int, epoch: int, host: str) -> Readers:
        """The list with that agent on `host` from `epoch` on, which no agent has begun."""
        kept = tuple(one for one in self.homes if one[:2] != (agent, epoch))
        return replace(self, homes=(*kept, (agent, epoch, host)))

    def home(self, agent: int, epoch: int | None = None) -> str:
        """An agent's host in an epoch, or its newest host; empty: not known."""
        known = [(since, host) for one, since, host in self.homes if one == agent and (epoch is None or since <= epoch)]
        return max(known, default=(0, ""))[1]

    def near(self, epoch: int) -> dict[int, frozenset[int]]:
        """By agent that begins the epoch, the shards on its host."""
        on: dict[str, set[int]] = {}
        for shard, hosts in enumerate(self.shard_hosts):
            for host in hosts:
                on.setdefault(host, set()).add(shard)
        return {agent: frozenset(on.get(self.home(agent, epoch), ())) for agent in self.begin(epoch)}

    def go_on(self, agents: int, left: Mapping[int, tuple[int, int]], last: int) -> Readers:
        """The first list of the next attempt.

        Args:
            agents: number of agents of the next attempt.
            left: by agent of this attempt, its last (epoch, finished units).
            last: newest epoch that any agent had begun.
        """
        ended = replace(self, before=())
        # An agent in a later epoch is removed first, so that it gets no units of an earlier one.
        for agent, (epoch, done) in sorted(left.items(), key=lambda one: (-one[1][0], one[0])):
            ended = ended.lose(agent, epoch, done, last)
        first = min((epoch for epoch, _ in left.values()), default=last + 1)
        return replace(Readers.of(agents, first), before=(*self.before, ended)).forget(first)

    def first(self, agent: int) -> int:
        """The epoch with which a new process of this agent begins."""
        return max((since for one, since in self.since if one == agent), default=0)

    def firsts(self) -> dict[int, int]:
        """`first` of each agent that has an entry."""
        return _newest(self.since)

    def begin(self, epoch: int) -> list[int]:
        """The agents that begin an epoch."""
        begun = {agent for agent, since in self.since if since <= epoch and not self._lost_between(agent, since, epoch)}
        return sorted(begun)

    def lost_in(self, epoch: int) -> tuple[Loss, ...]:
        """The losses that matter for one epoch, in order, each with the units that the agent had finished in it."""
        seen = []
        for loss in self.losses:
            if loss.epoch == epoch:
                seen.append(loss)
            elif loss.epoch > epoch:  # the agent had finished this epoch, and gets no units of agents that are lost later
                seen.append(replace(loss, epoch=epoch, done=_ALL))
            elif loss.last >= epoch:
                seen.append(replace(loss, epoch=epoch, done=0))
        return tuple(seen)

    @property
    def last(self) -> int:
        """The newest epoch that an agent is known to have begun; -1 for none."""
        return max((max(loss.epoch, loss.last) for one in (*self.before, self) for loss in one.losses), default=-1)

    def forget(self, epoch: int) -> Readers:
        """The list without entries that only epochs before `epoch` need."""
        begun = _newest(one for one in self.since if one[1] <= epoch)
        since = [(agent, begun[agent]) for agent in self.begin(epoch)]
        later = [one for one in self.since if one[1] > epoch]
        losses = tuple(loss for loss in self.losses if max(loss.epoch, loss.last) >= epoch)
        newest = _newest((agent, since) for agent, since, _ in self.homes if since <= epoch)
        homes = tuple(one for one in self.homes if one[1] > epoch or one[1] == newest[one[0]])
        before = tuple(one for one in self.before if one.last >= epoch)
        return replace(self, since=(*since, *later), losses=losses, before=before, homes=homes)

    def to_dict(self) -> dict[str, Any]:
        """The list as plain lists, numbers and texts, for a message or a backup."""
        hosts = sorted({host for one in self.shard_hosts for host in one})
        number = {host: index for index, host in enumerate(hosts)}
        where = {"hosts": hosts, "shard_hosts": [[number[host] for host in one] for one in self.shard_hosts]}
        return {
            "agents": self.agents,
            "since": [list(one) for one in self.since],
            "losses": [[one.agent, one.epoch, one.done, one.last] for one in self.losses],
            "before": [one.to_dict() for one in self.before],
            **({"homes": [list(one) for one in self.homes]} if self.homes else {}),
            **(where if self.shard_hosts else {}),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Readers:
        """The reverse of `to_dict`.

        Raises:
            KeyError, TypeError, ValueError: the value is no list of readers.
        """
        if not isinstance(value, Mapping):
            raise TypeError(f"not a map: {str(value)[:40]}")
        hosts = dict(enumerate(value.get("hosts", ())))
        return cls(
            int(value["agents"]),
            tuple((int(agent), int(epoch)) for agent, epoch in value["since"]),
            tuple(Loss(*map(int, one)) for one in value["losses"]),
            tuple(cls.from_dict(one) for one in value["before"]),
            tuple((int(agent), int(epoch), str(host)) for agent, epoch, host in value.get("homes", ())),
            tuple(tuple(str(hosts[host]) for host in one) for one in value.get("shard_hosts", ())),
        )

    def _lost_between(self, agent: int, since: int, epoch: int) -> bool:
        return any(loss.agent == agent and since <= loss.epoch and max(loss.epoch, loss.last) < epoch for loss in self.losses)


def units_of(starts: Sequence[int], records: int = UNIT_RECORDS) -> tuple[Unit, ...]:
    """Cut a split into units of at most `records` records; `starts` as in `index.Index`.

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
    """Deal an epoch's units: by agent, its share in reading order. A lost agent keeps the units that it had finished.

    Args:
        units: all units of the split.
        agents: agents that begin the epoch, in any order.
        lost: agents that were lost in the epoch, in the order of their losses.
        sticky: give an agent the same units in every epoch, so that it finds its records in its local copy. Otherwise units
            are dealt anew in each epoch; that mixes better, but a unit is in the right one of K agents' copies with chance 1/K.
        near: by agent, the shards on its host.

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
    cut: Callable[[int], Sequence[Unit]], readers: Readers, *, seed: int, epoch: int, sticky: bool = False
) -> dict[int, tuple[Unit, ...]]:
    """Deal an epoch as `plan` does, to these readers. If an earlier attempt began the epoch, only the rest is dealt.

    Args:
        cut: gives the split's units for a number of agents.
        readers: the newest list of readers.
    """
    rest: list[Unit] | None = None  # units that an earlier attempt left in this epoch
    for one in (*readers.before, readers):
        if rest is None and one is not readers and one.last < epoch:
            continue
        agents = one.begin(epoch)
        if not agents and one is not readers:
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
    """Deal a whole epoch to the agents that begin it."""
    everybody = sorted(agents)
    # The leading number keeps the streams apart: SeedSequence takes (1, 0) and (1, 0, 0) for the same.
    order = np.random.default_rng((3, seed) if sticky else (4, seed, epoch)).permutation(len(units)).tolist()
    shuffled = [units[i] for i in order]
    if len({near.get(agent, frozenset()) for agent in everybody}) > 1:
        dealt = _deal_near(shuffled, everybody, near)
    else:  # all agents have the same shards on their hosts
        dealt = {agent: shuffled[index :: len(everybody)] for index, agent in enumerate(everybody)}
    if sticky:
        for agent, share in dealt.items():
            np.random.default_rng((5, seed, epoch, agent)).shuffle(share)
    return dealt


def _deal_near(units: Sequence[Unit], agents: Sequence[int], near: Mapping[int, frozenset[int]]) -> dict[int, list[Unit]]:
    """Deal shares of the usual sizes, in the order of `units`, with as many near units as this greedy rule finds.

    Units that are near to the fewest agents come first; each goes to the near agent with the most room. Units without a near
    agent that has room come last, and go to the agent with the most room. A flow would be optimal; in sixty random placements
    this rule gave at least 97 % of the flow's near units.
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
    return {agent: [units[index] for index in sorted(indices)] for agent, indices in taken.items()}


def _move(dealt: dict[int, list[Unit]], lost: Iterable[Loss]) -> list[Unit]:
    """Give the unfinished units of lost agents to the living, in place. Returns the units for which no agent is left."""
    living = list(dealt)
    rest: list[Unit] = []
    for loss in lost:
        if loss.agent not in living:  # the agent did not begin this epoch
            continue
        rest, dealt[loss.agent] = dealt[loss.agent][loss.done :], dealt[loss.agent][: loss.done]
        living.remove(loss.agent)
        for index, agent in enumerate(living):
            dealt[agent] += rest[index :: len(living)]
    return [] if living else rest
