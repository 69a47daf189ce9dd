"""Every record of an epoch is read once, whoever is lost or joins: counted, over many seeds."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import msgpack
import pytest

from mpca.data.plan import Loss, Readers, Unit, plan, shares, units_of

STARTS = [0, 40, 41, 95, 100]


def records(units: tuple[Unit, ...]) -> list[int]:
    return [number for unit in units for number in range(unit.first, unit.first + unit.count)]


def test_units_cover_every_record_and_never_two_shards() -> None:
    units = units_of(STARTS, records=8)
    assert records(units) == list(range(100))
    assert all(STARTS[one.shard] <= one.first and one.first + one.count <= STARTS[one.shard + 1] for one in units)


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("agents", [1, 3, 8])
def test_agents_together_read_every_record_once(agents: int, sticky: bool) -> None:
    units = units_of(STARTS, records=4)
    for epoch in range(3):
        shares = plan(units, seed=5, epoch=epoch, agents=range(agents), sticky=sticky)
        assert sorted(number for share in shares.values() for number in records(share)) == list(range(100))
        sizes = [len(share) for share in shares.values()]
        assert max(sizes) - min(sizes) <= 1


def test_epochs_and_seeds_differ_and_a_sticky_share_is_the_same_in_another_order() -> None:
    units = units_of(STARTS, records=4)
    fresh = [plan(units, seed=5, epoch=epoch, agents=range(2))[0] for epoch in (0, 1, 0)]
    assert fresh[0] == fresh[2]
    assert set(fresh[0]) != set(fresh[1])
    assert fresh[0] != plan(units, seed=6, epoch=0, agents=range(2))[0]
    kept = [plan(units, seed=5, epoch=epoch, agents=range(2), sticky=True)[0] for epoch in (0, 1)]
    assert kept[0] != kept[1]
    assert set(kept[0]) == set(kept[1])


@pytest.mark.parametrize("sticky", [False, True])
def test_agents_read_what_is_near_first_and_shares_stay_as_large(sticky: bool) -> None:
    units = units_of(range(0, 121, 10), records=2)  # 12 shards of 5 units
    near = {0: frozenset(range(4)), 1: frozenset(range(2, 8)), 2: frozenset()}
    for epoch in range(3):
        dealt = plan(units, seed=1, epoch=epoch, agents=[2, 0, 1], sticky=sticky, near=near)
        assert sorted(number for share in dealt.values() for number in records(share)) == list(range(120))
        assert [len(share) for share in dealt.values()] == [20, 20, 20]
        # 40 units are near to somebody, who have room for as many
        assert [sum(unit.shard in near[agent] for unit in share) for agent, share in sorted(dealt.items())] == [20, 20, 0]
    assert dealt[0] != plan(units, seed=2, epoch=2, agents=[0, 1, 2], sticky=sticky, near=near)[0]


def test_readers_know_who_lives_beside_which_shards_from_which_epoch_on() -> None:
    readers = replace(Readers.of(2), shard_hosts=(("a", "b"), ("c",), ()))
    readers = readers.settle(0, 0, "a").settle(1, 0, "c").lose(1, 3, 0).join(1, 4).settle(1, 4, "b")
    readers = Readers.from_dict(msgpack.unpackb(msgpack.packb(readers.to_dict())))
    assert readers.near(3) == {0: {0}, 1: {1}}
    assert readers.near(4) == {0: {0}, 1: {0}}
    assert (readers.home(1), readers.home(1, 3), readers.home(7)) == ("b", "c", "")
    assert readers.forget(4).near(4) == readers.near(4)
    assert readers.forget(4).homes == ((0, 0, "a"), (1, 4, "b"))
    later = readers.go_on(3, {0: (4, 1), 1: (4, 0)}, last=4)
    assert (later.homes, later.shard_hosts) == ((), ()), "another attempt learns anew which hosts hold which shard"
    assert later.before[0].near(4) == readers.near(4), "what that one had dealt stays dealt"


def test_where_nobody_is_nearer_than_the_others_the_deal_is_the_usual_one() -> None:
    units = units_of(STARTS, records=4)
    usual = plan(units, seed=5, epoch=1, agents=range(3))
    for here in (frozenset(), frozenset({0, 1, 2, 3})):
        assert plan(units, seed=5, epoch=1, agents=range(3), near=dict.fromkeys(range(3), here)) == usual


@pytest.mark.parametrize("seed", range(30))
def test_what_lost_agents_had_begun_and_what_the_living_read_is_everything_once(seed: int) -> None:
    chance = random.Random(seed)
    units = units_of([0, 200], records=3)
    agents = chance.randint(2, 6)
    lost: list[Loss] = []
    for agent in chance.sample(range(agents), chance.randint(1, agents - 1)):
        before = plan(units, seed=seed, epoch=2, agents=range(agents), lost=lost)
        lost.append(Loss(agent, 2, chance.randint(0, len(before[agent]))))
        after = plan(units, seed=seed, epoch=2, agents=range(agents), lost=lost)
        for other, share in before.items():  # nobody's plan changes but at its end
            kept = lost[-1].done if other == agent else len(share)
            assert after[other][:kept] == share[:kept]
    counted = Counter(number for share in after.values() for number in records(share))
    assert counted == Counter(range(200))


def test_a_lost_agent_is_not_dealt_to_in_later_epochs_and_one_that_joins_is() -> None:
    readers = Readers.of(3).lose(1, epoch=4, done=2)
    assert readers.begin(4) == [0, 1, 2]
    assert readers.lost_in(4) == (Loss(1, 4, 2),)
    assert readers.begin(5) == [0, 2]
    assert readers.lost_in(5) == ()
    back = readers.join(1, epoch=6).join(3, epoch=7)
    assert [back.begin(epoch) for epoch in (4, 5, 6, 7)] == [[0, 1, 2], [0, 2], [0, 1, 2], [0, 1, 2, 3]]


def test_epochs_that_others_had_begun_are_dealt_anew_without_the_lost() -> None:
    readers = Readers.of(3).lose(1, epoch=4, done=2, last=5)
    assert [readers.begin(epoch) for epoch in (4, 5, 6)] == [[0, 1, 2], [0, 1, 2], [0, 2]]
    assert readers.lost_in(5) == (Loss(1, 5, 0, 5),), "it was dealt a share of epoch 5, and read nothing of it"


class ReadingAgents:
    """Agents that read a few units at a time, by the lists of readers that they are told; `read` counts by epoch."""

    def __init__(self, units: int, seed: int) -> None:
        self.units, self.seed = units_of(range(0, units + 1, 6), records=1), seed
        self.read: dict[int, Counter[int]] = {}
        self.at: dict[int, tuple[int, int]] = {}
        self.seen: dict[tuple[int, int], list[Unit]] = {}

    def cut(self, agents: int) -> tuple[Unit, ...]:
        return self.units

    def go(self, agent: int, readers: Readers, units: int) -> None:
        epoch, done = self.at.setdefault(agent, (readers.first(agent), 0))
        while units:
            share = shares(self.cut, readers, seed=self.seed, epoch=epoch).get(agent, ())
            seen = self.seen.setdefault((agent, epoch), [])
            assert list(share[: len(seen)]) == seen, "what was read stays at the front"
            if done == len(share):
                epoch, done = epoch + 1, 0
                continue
            seen.append(share[done])
            self.read.setdefault(epoch, Counter())[share[done].first] += 1
            done, units = done + 1, units - 1
        self.at[agent] = (epoch, done)

    def last(self) -> int:
        return max((epoch for epoch, _ in self.at.values()), default=-1)


def with_hosts(readers: Readers, chance: random.Random) -> Readers:
    """As an attempt begins whose data lie on three hosts, which its agents are on, or on some other."""
    hosts = tuple(tuple(chance.sample("abc", chance.randint(0, 2))) for _ in range(10))
    readers = replace(readers, shard_hosts=hosts)
    for agent in range(readers.agents):
        readers = readers.settle(agent, readers.first(agent), chance.choice("abcd"))
    return readers


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_every_record_is_read_once_through_losses_joins_and_attempts(seed: int, near: bool) -> None:
    """Nobody ends an epoch before all heard of a loss in it: then nothing at all is read twice or left out."""
    chance = random.Random(seed)
    reading, readers = ReadingAgents(60, seed), Readers.of(4)
    readers = with_hosts(readers, chance) if near else readers
    living, last = {0, 1, 2, 3}, -1
    for _ in range(12):
        act = chance.choice(("lose", "join", "resume", "read"))
        if act == "lose" and len(living) > 1:
            lost = chance.choice(sorted(living))
            epoch, done = reading.at.get(lost, (readers.first(lost), 0))
            others = [reading.at.get(agent, (readers.first(agent), 0))[0] for agent in living - {lost}]
            if epoch not in others or any(readers.first(one) <= epoch < reading.at.get(one, (0, 0))[0] for one in living):
                continue
            living.discard(lost)
            readers = readers.lose(lost, epoch, done, max(last, reading.last()))
            reading.at.pop(lost, None)
        elif act == "join" and len(living) < 4:
            one = min({0, 1, 2, 3} - living)
            last = max(last, reading.last(), readers.last, *(readers.first(agent) for agent in living)) + 1
            readers = readers.join(one, last)
            readers = readers.settle(one, last, chance.choice("abcd")) if near else readers
            living.add(one)
            reading.seen = {key: seen for key, seen in reading.seen.items() if key[0] != one}
        elif act == "resume":
            left = {agent: reading.at.get(agent, (readers.first(agent), 0)) for agent in living}
            last = max(last, reading.last())
            agents = chance.randint(1, 4)
            readers = Readers.from_dict(readers.to_dict()).go_on(agents, left, last)
            readers = with_hosts(readers, chance) if near else readers
            living = set(range(agents))
            reading.at, reading.seen = {}, {}
        else:
            for agent in living:  # the slowest first, by less than is left of its epoch
                reading.go(agent, readers, chance.randint(0, 5))
        readers = readers.forget(min(reading.at.get(agent, (readers.first(agent), 0))[0] for agent in living))
    end = max(last, reading.last()) + 1
    for epoch in range(end):
        for agent in sorted(living):
            while reading.at.get(agent, (readers.first(agent), 0))[0] <= epoch:
                reading.go(agent, readers, 1)
    for epoch in range(end):
        counted = reading.read.get(epoch, Counter())
        assert set(counted.values()) <= {1}, (epoch, counted)
        assert len(counted) == 60, (epoch, sorted(set(range(60)) - set(counted)))
