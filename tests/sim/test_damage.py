"""An executor whose bytes arrive damaged: once is mended; twice it is left out of everything, with the reason."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from mpca.sim.faults import Fault
from mpca.sim.run import Outcome, Scenario, simulate
from mpca.timeouts import BARRED_S

BASE = Scenario(agents=4, min_agents=2, cycles=40)


def damaged(times: int, point: str, agent: int = 2, **changes: object) -> Outcome:
    fault = Fault("damage", agent, 6, point, times=times)
    outcome = simulate(replace(BASE, faults=(fault,), **changes), 3)
    assert outcome.faults == [fault]
    return outcome


@pytest.mark.parametrize("point", ["submit", "started", "reducing"])
def test_once_is_mended_and_nobody_is_left_out(point: str) -> None:
    assert damaged(1, point).ledger == simulate(BASE, 3).ledger


def test_a_part_that_is_damaged_twice_leaves_its_executor_out_of_the_whole_cycle() -> None:
    outcome = damaged(2, "started")
    hit = next(one for one in outcome.commits if one.left_out)
    assert hit.cycle == 6
    assert hit.submissions == 2
    assert sorted(hit.contributors) == [0, 1, 3]  # eq. 8 over these, in every element: the checker has compared it
    assert hit.left_out == {2: "executor e3 damages bytes: its part of 6"}
    assert all(sorted(one.contributors) == [0, 1, 3] for one in outcome.commits if one.cycle > 6)
    assert [one.reason for one in outcome.records if getattr(one, "event", "") == "lost"] == [hit.left_out[2]]


def test_a_damaged_piece_of_a_broadcast_has_the_same_consequence() -> None:
    outcome = damaged(2, "submit", cycles=12)
    lost = [one.reason for one in outcome.records if getattr(one, "event", "") == "lost"]
    assert lost == ["executor e3 damages bytes: a piece of a broadcast"]
    assert sorted(outcome.commits[-1].contributors) == [0, 1, 3]


def test_it_contributes_again_when_its_time_is_over() -> None:
    costs = replace(BASE.costs, rate=1e5, step_s=0.5)  # cycles of half a minute: few cover the time
    outcome = damaged(2, "started", cycles=45, costs=costs, deadline_s=90.0, patience_s=5000.0)
    left = [one for one in outcome.commits if 2 not in one.contributors]
    lasted = left[-1].stages["reduce"]["end"] - left[0].stages["reduce"]["start"]
    starts = [one.stages["reduce"]["start"] for one in outcome.commits]
    cycle = max(after - before for before, after in pairwise(starts))
    # the cycle in which it was barred, the one in which it is asked again, the freeze after that, its sum: each begun in part
    assert BARRED_S - cycle <= lasted <= BARRED_S + 5 * cycle
    assert sorted(outcome.commits[-1].contributors) == [0, 1, 2, 3]
    assert outcome.commits[-1].left_out == {}
