"""A run that goes on from a backup with agents' own states, and as many agents, is the run that was never interrupted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mpca.sim.costs import Costs
from mpca.sim.run import Outcome, Scenario, simulate, standard_scenario

pytestmark = pytest.mark.long

#: Methods by which the number of updates between two exchanges does not hang on how long things take.
IN_STEP: dict[str, dict[str, Any]] = {
    "sync": {"name": "sync", "tau": 5},
    "sync-ps": {"name": "sync-ps"},
    "dl4j": {"name": "dl4j-averaging", "averaging_frequency": 3},
    "diloco": {"name": "diloco", "period": 6},
}
#: Methods whose agents never wait.
FREE: dict[str, dict[str, Any]] = {
    "paper": {"name": "mpca-paper"},
    "default": {"name": "mpca-nesterov", "shards": 4},
    "delayed": {"name": "mpca", "correction": True, "gamma": 0.0},
    "two": {"name": "mpca", "phases": 2, "gamma_ramp": 0},
    "easgd": {"name": "sync-easgd", "tau": 4},
    "streaming": {"name": "diloco", "period": 6, "fragments": 3, "overlap": True},
    "eager": {"name": "diloco", "period": 6, "fragments": 3, "overlap": True, "eager": True},
    "overlap": {"name": "overlap-local-sgd", "tau": 4},
}


def run(method: dict[str, Any], cycles: int = 24, trainer: str = "linear", **rest: Any) -> Outcome:
    costs = Costs(step_s=0.05)
    return simulate(Scenario(agents=4, method=method, trainer=trainer, cycles=cycles, costs=costs, save_every_s=1.5), 3, **rest)


def told(outcome: Outcome, since: int) -> list[Any]:
    return [
        (one.cycle, one.shard, one.contributors, one.alpha, one.beta, one.gamma)
        for one in outcome.commits
        if one.cycle >= since
    ]


@pytest.mark.parametrize("name", IN_STEP)
def test_it_has_the_ledger_of_the_run_that_was_never_interrupted(name: str) -> None:
    whole = run(IN_STEP[name])
    saved = [one for one in whole.saved if 3 < one.state.cycle < 20]
    assert saved, [one.state.cycle for one in whole.saved]
    for one in saved[:2]:
        assert len(one.state.agents) == 4
        again = run(IN_STEP[name], begin=one)
        assert told(again, 0) == told(whole, one.state.cycle)
        assert all(np.array_equal(a, b) for a, b in zip(again.joint, whole.joint, strict=True))


@pytest.mark.parametrize("name", FREE)
def test_agents_that_never_wait_go_on_at_their_own_parameters(name: str) -> None:
    whole = run(FREE[name], trainer="integer")
    saved = [one for one in whole.saved if 3 < one.state.cycle < 20]
    assert saved
    begin = saved[0]
    assert len(begin.state.agents) == 4
    taus = [begin.files[one["url"]]["machine"]["taus"] for one in begin.starts().values()]
    again = run(FREE[name], trainer="integer", begin=begin)
    first = again.commits[0]
    assert first.cycle == begin.state.cycle
    shard = first.shard
    assert all(first.contributors[agent]["tau"] >= taus[agent][shard] for agent in range(4)), "what it had trained counts"
    assert told(again, 0) == told(run(FREE[name], trainer="integer", begin=begin), 0), "the same again"


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("method", [{"name": "mpca"}, {"name": "sync", "tau": 5}, {"name": "mpca-nesterov", "shards": 4}])
def test_saving_breaks_no_invariant_whatever_dies_meanwhile(method: dict[str, Any], seed: int) -> None:
    """Agents and executors that are killed, late, damaged: the ledger is whole, and the run comes to its end."""
    scenario = replace(standard_scenario(seed), method=method, save_every_s=0.9)
    outcome = simulate(scenario, seed)
    assert outcome.status == "max_cycles"
    assert len(outcome.saved) > 5
    assert any(len(one.state.agents) == scenario.agents for one in outcome.saved)
    assert all(len(one.state.agents) in (0, scenario.agents) for one in outcome.saved), "all of them or none"


def test_nothing_is_on_its_way_where_agents_are_saved() -> None:
    """Every cycle before it is in the joint model, and delivered: each agent has the newest version of each shard."""
    outcome = run(FREE["paper"], trainer="integer")
    checked = 0
    for one in outcome.saved:
        if not one.state.agents or one.state.cycle == 24:  # the last is saved by the order that stops the run
            continue
        assert sum(one.state.exchanges) == one.state.cycle
        for start in one.starts().values():
            assert one.files[start["url"]]["machine"]["installed"] == one.state.exchanges
        checked += 1
    assert checked > 3
