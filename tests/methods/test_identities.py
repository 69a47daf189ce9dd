"""Methods that must be the same thing, and what they conserve: on the production driver and agents, in virtual time."""

from __future__ import annotations

import numpy as np
import pytest

from mpca.algorithm import weighted_sum
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
