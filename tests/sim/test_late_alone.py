"""A link that is slow or broken to one agent alone: the cycles of the others take as long as ever."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from mpca.driver.events import Acknowledged
from mpca.records import AgentRecord
from mpca.sim.cluster import SimCluster
from mpca.sim.run import Scenario, simulate
from mpca.sim.world import World


class DeafLink:
    """A cluster of which the acknowledgements of one agent come `late_s` too late, its third to fifth; or never."""

    def __init__(self, inner: SimCluster, world: World, agent: int, late_s: float | None) -> None:
        self._inner, self._world, self._agent, self._late_s = inner, world, agent, late_s
        self._held: list[tuple[float, Acknowledged]] = []
        self.seen = self.delayed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def poll(self, timeout_s: float) -> list[Any]:
        now, out = self._world.now, []
        for event in self._inner.poll(timeout_s):
            mine = isinstance(event, Acknowledged) and event.agent == self._agent
            self.seen += mine
            if mine and 2 < self.seen <= 5:
                self.delayed += 1
                self._held += [(now + self._late_s, event)] if self._late_s is not None else []
            else:
                out.append(event)
        out += [event for at, event in self._held if at <= now]
        self._held = [one for one in self._held if one[0] > now]
        return out


@pytest.mark.parametrize("late_s", [None, 3.0])
@pytest.mark.parametrize("phases", [1, 2, 3])
def test_no_cycle_waits_for_the_deadline_because_of_one_agent(phases: int, late_s: float | None) -> None:
    links: list[DeafLink] = []

    def around(cluster: SimCluster, world: World) -> DeafLink:
        links.append(DeafLink(cluster, world, 1, late_s))
        return links[0]

    scenario = Scenario(agents=4, cycles=150, deadline_s=8.0, method={"name": "mpca", "phases": phases})
    outcome = simulate(scenario, 3, around)
    assert links[0].delayed == 3
    lasted = [later.t - one.t for one, later in pairwise(outcome.commits)]
    assert max(lasted) < 4.0, "two mean downloads, not the deadline of 8 s"
    without = [one for one in outcome.commits if 1 not in one.contributors]
    assert {one.left_out[1] for one in without} == {"late: its download was not acknowledged in time"}
    assert len(without) < len(outcome.commits) / 2
    assert all({0, 2, 3} <= set(one.contributors) for one in outcome.commits)
    lost = [one.index for one in outcome.records if isinstance(one, AgentRecord) and one.event == "lost"]
    assert lost == ([1] * 3 if late_s is None else []), "whose download comes after all was never lost"
