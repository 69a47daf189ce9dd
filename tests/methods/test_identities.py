"""Methods that must be the same thing, and what they conserve: on the production driver and agents, in virtual time."""

from __future__ import annotations

import numpy as np
import pytest

from mpca.algorithm import weighted_sum
from mpca.sim.costs import Costs
from mpca.sim.faults import Fault
from mpca.sim.run import Outcome, Scenario, simulate
from mpca.sim.trainers import LinearTrainer


def run(method: dict[str, object], cycles: int, seed: int = 0, **more: object) -> Outcome:
    """Plain SGD on losses with constant gradients, without buffers."""
    values = {"agents": 4, "trainer": "linear", "buffers": 0, "parameters": 7, **more}
    return simulate(Scenario(method=method, cycles=cycles, **values), seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("faults", [(), (Fault("kill_agent", 2, 4, "frozen"),)], ids=["all", "loses one"])
def test_mpca_with_replacement_without_projection_in_one_phase_is_sync_with_overlap(seed: int, faults: tuple[Fault]) -> None:
    """Every snapshot is tau updates from the newest joint state, which is the mean: agents only do not wait for it."""
    method = {"name": "mpca", "replace": True, "shards": 1, "gamma": 0.0, "beta": 1.0}
    outcome = run(method, 12, seed, faults=faults)
    joint = np.zeros(7, np.float32)
    for one in outcome.commits:
        taus = {int(agent): said["tau"] for agent, said in one.contributors.items()}
        steps = {agent: tau * LinearTrainer.lr * LinearTrainer.gradient_of(7, agent) for agent, tau in taus.items()}
        mean = weighted_sum([joint - steps[agent] for agent in taus], list(taus.values()))
        joint = joint if mean is None else mean
    np.testing.assert_allclose(np.concatenate(outcome.joint), joint, rtol=1e-5)
    assert outcome.faults == list(faults)


LOSES = (Fault("kill_agent", 2, 4, "frozen"), Fault("kill_executor", 1, 7, "reducing"))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("faults", [(), LOSES], ids=["all", "loses two"])
def test_diloco_with_outer_rate_1_and_no_momentum_is_sync_to_the_bit(seed: int, faults: tuple[Fault, ...]) -> None:
    diloco = run({"name": "diloco", "period": 5, "outer_lr": 1.0, "outer_momentum": 0.0}, 12, seed, faults=faults, buffers=2)
    sync = run({"name": "sync", "tau": 5}, 12, seed, faults=faults, buffers=2)
    assert diloco.ledger == sync.ledger
    assert [one.tobytes() for one in diloco.joint] == [one.tobytes() for one in sync.joint]
    assert len(diloco.faults) == len(faults)


@pytest.mark.parametrize("phases", [1, 3])
@pytest.mark.parametrize("mixing", [0.0, 0.5])
def test_streaming_fragments_are_exchanged_in_turn_with_the_period_of_diloco(phases: int, mixing: float) -> None:
    """Every fragment has its turn after `period` updates, and nobody waits: a fast agent makes more."""
    method = {"name": "diloco", "period": 80, "fragments": 4, "overlap": True, "phases": phases, "mixing": mixing}
    costs = Costs(rate=1e9, spread=0.0)
    commits = run(method, 24, parameters=16, costs=costs).commits
    assert [one.shard for one in commits] == [n % 4 for n in range(24)]
    begun = [one.stages["reduce"]["start"] for one in commits]
    periods = [(b - a) / costs.step_s for a, b in zip(begun[4:], begun[8:], strict=False)]
    assert all(80 <= period < 100 for period in periods), periods
    if mixing:
        assert {one["tau"] for commit in commits[4:] for one in commit.contributors.values()} == {80}
        assert {commit.alpha for commit in commits} == {0.5}
