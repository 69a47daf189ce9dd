"""The norm limit over whole runs: what is wild never enters, and what trains as it should is never left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mpca.methods import How
from mpca.records import AgentRecord
from mpca.sim import trainers
from mpca.sim.costs import Costs
from mpca.sim.faults import Fault
from mpca.sim.run import Outcome, Scenario, simulate

pytestmark = pytest.mark.long

OPTIMUM, NOISE = 10.0, 5.0
BASE = Scenario(agents=4, cycles=60, parameters=30, buffers=10, trainer="descent", norm_limit=10.0)

Change = Callable[[int, int, int, np.ndarray], None]


def _nothing(agent: int, incarnation: int, updates: int, x: np.ndarray) -> None:
    pass


class Descent(trainers.QuadraticTrainer):
    """Noisy descent to one optimum, and statistics of batches beside it. `spoil` may spoil the numbers."""

    lr = 0.05
    spoil: Change = staticmethod(_nothing)

    def __init__(self, bounds: list[int], parameters: int, how: How, agent: int, incarnation: int) -> None:
        super().__init__(bounds, parameters, how, agent, incarnation)
        self._random = np.random.default_rng([agent, incarnation])
        self._me, self._updates = (agent, incarnation), 0

    def advance(self, updates: int, pulls: tuple[tuple[int, float], ...]) -> None:
        for _ in range(updates):
            self._optimum = OPTIMUM + self._random.normal(0, NOISE, self.parameters).astype(np.float32)
            super().advance(1, pulls)
        seen = 500 + self._random.normal(0, 50, self.x.size - self.parameters)
        self.x[self.parameters :] += (1 - 0.9**updates) * (seen - self.x[self.parameters :])
        self._updates += updates
        self.spoil(*self._me, self._updates, self.x)


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch):
    def run(spoil: Change = _nothing, seed: int = 0, lr: float = 0.05, **changes) -> Outcome:
        monkeypatch.setitem(trainers.TRAINERS, "descent", type("Spoilt", (Descent,), {"spoil": staticmethod(spoil), "lr": lr}))
        return simulate(replace(BASE, **changes), seed)

    return run


def beyond(outcome: Outcome) -> list[tuple[int, int]]:
    """(cycle, agent) of what was left out by the limit."""
    every = [(one.cycle, agent, why) for one in outcome.commits for agent, why in one.left_out.items()]
    return [(cycle, agent) for cycle, agent, why in every if why.startswith("norm limit")]


def size(outcome: Outcome) -> float:
    return max(float(np.abs(shard).max()) for shard in outcome.joint)


# ---- what is wild ----------------------------------------------------------------------------------------------------


def once(agents: set[int], value: float, at: int = 150) -> Change:
    """These agents, as they were started first, have such a number in each shard's parameters, until they take a joint one."""
    done = set()

    def spoil(agent: int, incarnation: int, updates: int, x: np.ndarray) -> None:
        if agent in agents and incarnation == 0 and updates > at and agent not in done:
            done.add(agent)
            x[::5] = value

    return spoil


@pytest.mark.parametrize("agents", [2, 3, 4, 8])
@pytest.mark.parametrize("method", [{"name": "mpca"}, {"name": "sync", "tau": 5}])
def test_1e30_of_one_agent_never_enters_and_the_agent_goes_on(train, agents: int, method: dict) -> None:
    outcome = train(once({1}, 1e30, at=40), agents=agents, method=method)
    assert {agent for _, agent in beyond(outcome)} == {1}
    assert size(outcome) < 1000
    assert 1 in outcome.commits[-1].contributors
    assert not [one for one in outcome.records if isinstance(one, AgentRecord) and one.event == "lost"]


def test_half_of_the_agents_wild_at_once_never_enter(train) -> None:
    outcome = train(once({0, 3}, -1e30))
    assert {agent for _, agent in beyond(outcome)} == {0, 3}
    assert size(outcome) < 1000


def test_of_two_agents_on_one_executor_the_other_ones_contribution_enters(train) -> None:
    outcome = train(once({1}, 1e30), per_executor=2)
    cycles = {cycle for cycle, _ in beyond(outcome)}
    assert cycles
    assert all({0, 2, 3} <= set(one.contributors) for one in outcome.commits if one.cycle in cycles)
    assert size(outcome) < 1000


def test_statistics_of_batches_are_looked_at_like_parameters(train) -> None:
    def spoil(agent: int, incarnation: int, updates: int, x: np.ndarray) -> None:
        if agent == 1 and 150 < updates < 180:
            x[-1] = 1e9

    outcome = train(spoil)
    assert {cycle % 3 for cycle, _ in beyond(outcome)} == {2}  # the shard that holds them
    assert size(outcome) < 1000


def test_an_agent_that_is_wild_again_and_again_is_started_anew(train) -> None:
    def spoil(agent: int, incarnation: int, updates: int, x: np.ndarray) -> None:
        if (agent, incarnation) == (1, 0) and updates > 150:
            x[:] = 1e20

    outcome = train(spoil, cycles=100)
    (lost,) = [one for one in outcome.records if isinstance(one, AgentRecord) and one.event == "lost"]
    assert lost.reason == "its parameters were beyond the norm limit 3 times within 10 exchanges"
    assert outcome.commits[-1].contributors[1]["incarnation"] == 1
    assert size(outcome) < 1000


@pytest.mark.parametrize(("agents", "factor"), [(8, 1.1), (4, 1.2)])
def test_one_that_grows_slowly_is_left_out_before_the_joint_model_is_lost(train, agents: int, factor: float) -> None:
    """By `factor` an update; from one exchange to the next that is six times as much and more."""

    def spoil(agent: int, incarnation: int, updates: int, x: np.ndarray) -> None:
        if (agent, incarnation) == (1, 0) and updates > 150:
            x[:] = OPTIMUM + factor ** min(updates - 150, 300)

    outcome = train(spoil, agents=agents, cycles=100)
    assert 1 in {agent for _, agent in beyond(outcome)}
    assert size(outcome) < 1000


# ---- what is well ----------------------------------------------------------------------------------------------------

METHODS = [{"name": "mpca"}, {"name": "mpca", "install": "exchange"}, {"name": "mpca", "correction": True}, {"name": "sync"}]
ODD = {
    "plain": {},
    "slow_and_fast": {"costs": Costs(spread=10.0)},
    "joiner": {"executors": 3, "faults": (Fault("join", 0, 6, "started"),), "start_timeout_s": 3.0},
    "replaced": {"faults": (Fault("kill_agent", 1, 7, "frozen"), Fault("kill_executor", 2, 20, "reducing"))},
    "stopped": {"faults": (Fault("stop_agent", 1, 9, "submit", for_s=12.0),)},
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("agents", [2, 4])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: "-".join(map(str, method.values())))
def test_ordinary_training_is_never_left_out(train, method: dict, agents: int, odd: str) -> None:
    for lr in (0.005, 0.2):
        changes = {**ODD[odd], **({"executors": agents - 1} if odd == "joiner" else {})}
        outcome = train(agents=agents, method=method, lr=lr, **changes)
        assert beyond(outcome) == [], lr
        assert len(outcome.commits) > 50
