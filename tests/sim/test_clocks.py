"""Wall clocks that are wrong, or are set in mid-run, change nothing: the ledger is that of a run with right ones."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mpca.sim.clocks import NodeClock
from mpca.sim.faults import Fault
from mpca.sim.run import Outcome, Scenario, simulate
from mpca.sim.world import World

#: A stopped agent among them, so that a deadline ends something.
BASE = Scenario(agents=4, min_agents=2, cycles=24, faults=(Fault("stop_agent", 1, 6, "freezing", for_s=9.0),))
STEPS = (600.0, -600.0, 45.0, -45.0)


def clean(seed: int) -> Outcome:
    outcome = simulate(BASE, seed)
    assert any("no answer before the deadline" in one.left_out.values() for one in outcome.commits)
    return outcome


@pytest.mark.parametrize("skew_s", STEPS)
@pytest.mark.parametrize("seed", range(3))
def test_executors_whose_clocks_are_off_from_the_start(skew_s: float, seed: int) -> None:
    assert simulate(replace(BASE, skew_s=skew_s), seed).ledger == clean(seed).ledger


@pytest.mark.parametrize("by_s", STEPS)
@pytest.mark.parametrize("kind", ["skew_driver", "skew_executor"])
@pytest.mark.parametrize("point", ["submit", "reducing", "freezing", "frozen"])
def test_a_clock_that_is_set_in_mid_run(kind: str, by_s: float, point: str) -> None:
    there_and_back = (Fault(kind, 2, 5, point, by_s=by_s), Fault(kind, 2, 9, point, by_s=-2 * by_s))
    outcome = simulate(replace(BASE, faults=BASE.faults + there_and_back), 1)
    assert len(outcome.faults) == 3, "each of them happened"
    assert outcome.ledger == clean(1).ledger


def test_times_in_the_ledger_are_the_drivers() -> None:
    """Machines that were started at other times report times of one run."""
    outcome = simulate(replace(BASE, skew_s=600.0), 0)
    for line in map(json.loads, outcome.ledger):
        times = [at for stage in line.get("stages", {}).values() for at in (stage["start"], stage["end"])]
        times += [at for pause in line.get("pauses", {}).values() for at in pause]
        assert all(0.0 <= at <= line["t"] for at in times)


def test_a_node_clock_maps_there_and_back() -> None:
    world = World(0)
    clock = NodeClock(world, up_s=5000.0, ahead_s=-600.0)
    world.run(12.5, [])
    assert clock.now() == 5012.5
    assert clock.here(30.0) == 5030.0
    assert clock.of_driver(5030.0) == 30.0
    assert clock.wall() == world.true_wall() - 600.0
    world.clock.set_wall_forward(45.0)
    assert clock.wall() == world.clock.wall() - 645.0
