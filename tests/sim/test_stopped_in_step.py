"""A run of agents that are in step with each other, ended by its time and not by a number of cycles."""

from __future__ import annotations

import pytest

from mpca.sim.costs import Costs
from mpca.sim.run import Scenario, simulate


@pytest.mark.parametrize("max_time_s", [30.0, 50.0])
def test_agents_that_are_told_to_stop_hand_over_before_their_tau_updates(max_time_s: float) -> None:
    outcome = simulate(
        Scenario(
            agents=4,
            min_agents=4,
            method={"name": "sync", "tau": 20},
            cycles=1000,
            max_time_s=max_time_s,
            deadline_s=1e3,
            start_timeout_s=1e3,
            costs=Costs(step_s=0.8, dispatch_s=0.27),
        ),
        seed=1,
    )
    assert outcome.status == "max_time"
