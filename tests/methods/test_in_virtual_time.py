"""Each method of the table with the production driver and agents: against fractions, after a loss, and twice from one seed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpca.methods import METHODS
from mpca.sim.costs import Costs
from mpca.sim.faults import Fault
from mpca.sim.run import Outcome, Scenario, simulate, standard_scenario

pytestmark = pytest.mark.long

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "histories" / "in_step.json").read_text())
RING = json.loads((Path(__file__).parents[1] / "golden" / "histories" / "in_a_ring.json").read_text())
MACHINES = sorted(name for name, cls in METHODS.items() if not cls.simulated)
QUICK = Costs(rate=1e9, spread=0.1)  # an exchange is over before the next updates are made


def run(method: dict[str, Any], cycles: int, seed: int = 0, **more: Any) -> Outcome:
    return simulate(Scenario(method=method, cycles=cycles, **{"agents": 4, "min_agents": 2, **more}), seed)


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: json.dumps(case["method"]))
def test_joint_models_are_those_of_the_fractions(case: dict[str, Any]) -> None:
    for cycles, expected in enumerate(case["joint"], start=1):
        agents = {"agents": case["agents"], "min_agents": 1}
        outcome = run(case["method"], cycles, trainer="quadratic", parameters=3, buffers=0, costs=QUICK, **agents)
        assert {one["tau"] for commit in outcome.commits for one in commit.contributors.values()} == {case["updates"]}
        (joint,) = outcome.joint
        np.testing.assert_allclose(joint, expected, rtol=GOLDEN["relative_error"], atol=GOLDEN["relative_error"])


@pytest.mark.parametrize("case", RING["cases"], ids=lambda case: json.dumps(case["method"]))
def test_joint_models_of_a_server_are_those_of_the_fractions(case: dict[str, Any]) -> None:
    """An exchange takes as long as many updates, so that all but one agent wait, and are served in a ring."""
    for count, expected in enumerate(case["joint"], start=1):
        model = {"trainer": "quadratic", "parameters": 3, "buffers": 0, "agents": 3, "min_agents": 1}
        outcome = run(case["method"], count, costs=Costs(rate=1e6, spread=0.0), **model)
        assert [one.agent for one in outcome.exchanges] == [n % 3 for n in range(count)]
        assert {one.tau for one in outcome.exchanges} == {case["updates"]}
        (joint,) = outcome.joint
        np.testing.assert_allclose(joint, expected, rtol=RING["relative_error"], atol=RING["relative_error"])


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("point", ["reducing", "frozen"])
def test_an_agent_is_lost_and_its_replacement_takes_part(name: str, point: str) -> None:
    """The simulator's invariants hold: each joint state is made of exactly the contributions that the ledger lists."""
    method = METHODS[name]()
    point = {"reducing": "sending", "frozen": "answering"}[point] if method.asks else point
    fault = Fault("kill_agent", agent=0, cycle=3, point=point)
    cycles = 300 if method.auto_shards else 120 if method.asks else 60  # decided here: 24 shards
    outcome = run(method.to_dict(), cycles, agents=method.agents(4), min_agents=1, faults=(fault,))
    assert (outcome.status, outcome.faults, outcome.settled) == ("max_cycles", [fault], True)
    mine = [one["incarnation"] for commit in outcome.commits for a, one in commit.contributors.items() if a == 0]
    mine += [one.incarnation for one in outcome.exchanges if one.agent == 0]
    assert set(mine) == {0, 1}


@pytest.mark.parametrize("name", MACHINES)
def test_the_same_seed_gives_the_same_ledger(name: str) -> None:
    method = METHODS[name]()
    first, second = (run(method.to_dict(), 12, seed=5, agents=method.agents(4), min_agents=1) for _ in range(2))
    assert first.ledger == second.ledger
    assert all(np.array_equal(a, b) for a, b in zip(first.joint, second.joint, strict=True))


def test_after_a_fixed_time_a_straggler_hands_over_fewer_updates() -> None:
    """The slowest agent's update takes twice the time of the fastest; nobody waits longer than for an update of it."""
    costs = Costs(rate=1e9, spread=1.0, step_s=0.1, copy_s=0.0)
    commits = run({"name": "sync", "seconds": 1.95}, 6, costs=costs).commits
    for commit in commits:
        taus = [one["tau"] for _, one in sorted(commit.contributors.items())]
        assert (taus[0], taus[-1]) == (20, 10)
        assert sorted(taus, reverse=True) == taus


FORMS = (
    {"name": "diloco", "period": 20},
    {"name": "diloco", "period": 60, "fragments": 5, "overlap": True, "phases": 3},
    {"name": "diloco", "period": 60, "fragments": 4, "overlap": True, "mixing": 0.0},
    {"name": "diloco", "period": 60, "fragments": 5, "overlap": True, "eager": True, "phases": 3},
    {"name": "diloco", "period": 20, "overlap": True, "eager": True},
    {"name": "dl4j-averaging", "updater": "reset"},
    {"name": "mpca", "outer_lr": 0.7, "outer_momentum": 0.6, "correction": True, "shards": 7},
    {"name": "mpca", "regulariser": True, "alpha": 0.5},
    {"name": "mpca", "replace": True, "weighted": False},
    {"name": "mpca-paper"},
    {"name": "async-ps", "n_push": 5, "momentum": 0.5},
    {"name": "softsync", "n": 2},
    {"name": "gradient-sharing", "threshold": 2.0, "mean": True},
    {"name": "overlap-local-sgd", "tau": 70},
    {"name": "sync", "seconds": 0.5, "weighted": False},
    {"name": "sync-easgd", "tau": 30},
    {"name": "sync-ps"},
)


@pytest.mark.parametrize(("first", "end"), [(0, 2), pytest.param(2, 30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", FORMS, ids=json.dumps)
def test_schedules_with_faults_hold_all_invariants(method: dict[str, Any], first: int, end: int) -> None:
    for seed in range(first, end):
        scenario = replace(standard_scenario(seed), method=method, per_executor=1 + seed % 2, local=seed % 3 == 0)
        assert simulate(scenario, seed).status == "max_cycles"
