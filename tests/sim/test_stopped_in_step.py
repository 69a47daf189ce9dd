"""Runs of agents that are in step with each other: one that is ended by its time, and those whose agents are always late."""

from __future__ import annotations

from typing import Any

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


@pytest.mark.parametrize(
    "method",
    [{"name": "sync"}, {"name": "sync", "seconds": 3.0}, {"name": "diloco", "period": 10}],
    ids=["sync", "seconds", "diloco"],
)
def test_what_all_hand_over_too_late_is_asked_for_again_and_counts(method: dict[str, Any]) -> None:
    """Their updates take longer than the deadline. Without a joint state nobody would ever make another one."""
    outcome = simulate(
        Scenario(agents=3, min_agents=3, method=method, cycles=6, deadline_s=2.0, costs=Costs(step_s=0.3, rate=1e9)), seed=1
    )
    assert outcome.status == "max_cycles"
    assert all(one["tau"] >= 8 for commit in outcome.commits for one in commit.contributors.values())
