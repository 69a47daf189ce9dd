"""Every record of an epoch is read once, whoever is lost or joins: counted, over many seeds."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from mpca.data.plan import Loss, Membership, Unit, plan, units_of

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
            kept = lost[-1].begun if other == agent else len(share)
            assert after[other][:kept] == share[:kept]
    counted = Counter(number for share in after.values() for number in records(share))
    assert counted == Counter(range(200))


def test_a_lost_agent_is_not_dealt_to_in_later_epochs_and_one_that_joins_is() -> None:
    members = Membership.of(3).lose(1, epoch=4, begun=2)
    assert members.begin(4) == [0, 1, 2]
    assert members.lost_in(4) == (Loss(1, 4, 2),)
    assert members.begin(5) == [0, 2]
    assert members.lost_in(5) == ()
    back = members.join(1, epoch=6).join(3, epoch=7)
    assert [back.begin(epoch) for epoch in (4, 5, 6, 7)] == [[0, 1, 2], [0, 2], [0, 1, 2], [0, 1, 2, 3]]
