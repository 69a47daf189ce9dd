"""The production driver and agents on the simulated cluster: every schedule holds all invariants, and ends."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from mpca.sim.costs import Costs
from mpca.sim.faults import KINDS, POINTS, Fault
from mpca.sim.run import Scenario, simulate, standard_scenario
from mpca.sim.table_costs import TableCosts
from mpca.sim.trainers import TRAINERS, IntegerTrainer
from mpca.sim.transports import COORDINATED, Coordinated, Relay, Setting
from tests.sim.support import random_scenario

pytestmark = pytest.mark.long

#: Three hundred schedules in all; whoever waits has the first fifty of them.
FIFTIES = [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(50, 300, 50))]


def test_same_seed_gives_the_same_ledger() -> None:
    for seed in (3, 11, 40):
        first, second = (simulate(standard_scenario(seed), seed) for _ in range(2))
        assert first.ledger == second.ledger
        assert all(np.array_equal(a, b) for a, b in zip(first.joint, second.joint, strict=True))
        assert first.events == second.events


def test_another_seed_gives_another_ledger() -> None:
    scenario = Scenario(cycles=5)
    assert simulate(scenario, 1).ledger != simulate(scenario, 2).ledger


def test_without_faults_everyone_is_in_every_cycle() -> None:
    outcome = simulate(Scenario(), 0)
    assert outcome.status == "max_cycles"
    assert [one.cycle for one in outcome.commits[:30]] == list(range(30))
    assert all(len(one.contributors) == 8 and not one.left_out for one in outcome.commits)


@pytest.mark.parametrize(
    "method",
    [
        {"name": "mpca", "phases": 1},
        {"name": "mpca", "phases": 2},
        {"name": "mpca", "phases": 3},
        {"name": "mpca", "correction": True},
        {"name": "mpca", "regulariser": True, "alpha": 0.5},
        {"name": "mpca", "replace": True},
        {"name": "mpca", "weighted": False},
        {"name": "mpca", "install": "arrival", "shards": 5},
        {"name": "sync", "tau": 3},
        {"name": "single"},
        {"name": "overlap-local-sgd", "tau": 30},
        {"name": "diloco", "period": 30},
        {"name": "dl4j-averaging", "updater": "reset"},
        {"name": "sync", "seconds": 0.5},
        {"name": "sync-easgd", "tau": 30},
        {"name": "sync-ps"},
        {"name": "diloco", "period": 60, "fragments": 5, "overlap": True, "phases": 3},
        {"name": "diloco", "period": 30, "overlap": True, "eager": True},
    ],
    ids=str,
)
def test_every_method_runs(method: dict[str, object]) -> None:
    agents = 1 if method["name"] == "single" else 4
    assert simulate(Scenario(agents=agents, method=method, cycles=12), 0).status == "max_cycles"


def test_agents_in_step_hand_over_exactly_tau_updates() -> None:
    outcome = simulate(Scenario(agents=4, method={"name": "sync", "tau": 3}, cycles=12), 0)
    assert {one["tau"] for commit in outcome.commits for one in commit.contributors.values()} == {3}


def test_real_gradients_arrive_at_the_joint_optimum() -> None:
    """Agent k pulls towards k + (0, 1, 2, ...): the optimum of the sum is at the mean of the agents."""
    scenario = Scenario(agents=4, trainer="quadratic", method={"name": "mpca", "alpha": 0.2}, cycles=60)
    joint = np.concatenate(simulate(scenario, 0).joint)[: scenario.parameters]
    assert np.abs(joint - [1.5 + j % 3 for j in range(scenario.parameters)]).max() < 0.5


def test_stages_of_three_phases_overlap_in_virtual_time() -> None:
    commits = simulate(Scenario(cycles=20), 0).commits[5:15]
    for commit in commits:
        reduce, broadcast = commit.stages["reduce"], commit.stages["broadcast"]
        shared = min(reduce["end"], broadcast["end"]) - max(reduce["start"], broadcast["start"])
        assert shared >= 0.5 * min(reduce["end"] - reduce["start"], broadcast["end"] - broadcast["start"])


@pytest.mark.parametrize(
    "method", [{"name": "mpca", "shards": 3}, {"name": "mpca", "shards": 2, "phases": 1}, {"name": "mpca", "correction": True}]
)
def test_the_ledger_has_the_beta_and_gamma_of_the_exchange_that_it_tells_of(method: dict[str, object]) -> None:
    """Exchange k of a shard, from 0: beta_k = 0.9^(k/20), gamma_k = 0.7 k/20."""
    exchanges: Counter[int] = Counter()
    for one in simulate(Scenario(agents=2, method=method, cycles=12), 0).commits:
        k = exchanges[one.shard]
        exchanges[one.shard] += 1
        assert one.beta == pytest.approx(0.9 ** (k / 20))
        assert one.gamma == pytest.approx(0.7 * k / 20)


class Diary(IntegerTrainer):
    """Keeps what was asked of an agent's parameters, in order."""

    pages: ClassVar[dict[int, list[tuple[str, int]]]] = {}

    def snapshot(self, shard: int, out: np.ndarray) -> None:
        self.pages.setdefault(self.agent, []).append(("snapshot", shard))
        super().snapshot(shard, out)

    def install(self, shard: int, data: np.ndarray, version: int, mode: str) -> None:
        self.pages.setdefault(self.agent, []).append((mode, shard))
        super().install(shard, data, version, mode)


@pytest.mark.parametrize(("rate", "latency_s"), [(1e7, 0.001), (1e5, 0.3)])
def test_figure_12_an_answer_is_installed_at_the_next_exchange_of_its_shard(
    monkeypatch: pytest.MonkeyPatch, rate: float, latency_s: float
) -> None:
    """Three shards, three phases: what cycle n reduced is installed at the interruption for cycle n + 3, after its snapshot."""
    monkeypatch.setitem(TRAINERS, "diary", Diary)
    monkeypatch.setattr(Diary, "pages", {})
    costs = Costs(rate=rate, element_bytes=200_000 if rate > 1e6 else 2_000, latency_s=latency_s)
    method = {"name": "mpca", "install": "exchange"}
    simulate(Scenario(agents=3, method=method, cycles=18, trainer="diary", costs=costs), 0)
    for page in Diary.pages.values():
        first = next(place for place, (what, _) in enumerate(page) if what == "install")
        rest = page[first - 1 :]
        assert len(rest) >= 24
        assert rest == [one for n in range(len(rest) // 2) for one in (("snapshot", n % 3), ("install", n % 3))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("point", POINTS)
def test_each_fault_at_each_point(kind: str, point: str) -> None:
    """Alone, in the middle of a run; those that need something to befall say whether they found it."""
    fault = Fault(kind, agent=2, cycle=4, point=point, for_s=6.0 if kind == "stop_agent" else 0.0, by_s=600.0)
    outcome = simulate(Scenario(agents=4, min_agents=2, cycles=60, faults=(fault,)), 5)
    assert outcome.status == "max_cycles"
    assert outcome.settled
    if kind != "retry_task":  # there is a task to run again only while yields are taken
        assert outcome.faults == [fault]


@pytest.mark.parametrize("first", FIFTIES)
def test_standard_schedules(first: int) -> None:
    for seed in range(first, first + 50):
        simulate(standard_scenario(seed), seed)


@pytest.mark.parametrize("first", FIFTIES)
def test_schedules_of_all_kinds(first: int) -> None:
    ended = [simulate(random_scenario(seed), seed) for seed in range(first, first + 50)]
    early = [one for one in ended if one.status != "max_cycles"]
    assert len(early) <= 2
    for one in early:  # few agents, and all of them not finite at once
        assert one.status == "failed"
        assert "agents are not finite" in one.reason
        assert any(fault.kind == "non_finite" for fault in one.faults)


@pytest.mark.slow
def test_who_lives_contributes_again_long_after_the_last_fault() -> None:
    settled = 0
    for seed in range(40):
        scenario = random_scenario(seed)
        early = tuple(replace(fault, cycle=fault.cycle % 12 + 1) for fault in scenario.faults)
        settled += simulate(replace(scenario, cycles=120, faults=early), seed).settled
    assert settled >= 20


def test_three_faults_happen_on_average() -> None:
    happened = [len(simulate(standard_scenario(seed), seed).faults) for seed in range(60)]
    assert 2.5 < sum(happened) / len(happened) < 4.5


def test_a_scenario_is_data() -> None:
    scenario = standard_scenario(4)
    assert Scenario.from_json(scenario.to_json()) == scenario


@pytest.mark.parametrize("on", [*COORDINATED.values(), Relay(blocking=2.0)], ids=lambda one: one.name)
def test_a_scenario_with_a_transports_costs_is_data_too(on: Coordinated) -> None:
    setting = Setting(4, 1e6, 0.02, 1e6, engine_rate=math.inf)
    scenario = Scenario(agents=4, costs=TableCosts.of(setting, on, 3, 3, 24), cycles=9)
    read = Scenario.from_json(scenario.to_json())
    assert read == scenario
    assert simulate(read, 1).ledger == simulate(scenario, 1).ledger
