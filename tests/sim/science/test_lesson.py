"""The simulator with real gradients: methods learn, the same seed gives the same, and the number of runs changes nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from mpca.errors import ConfigError
from mpca.methods import How
from mpca.records import MetricsRecord
from mpca.sim.cost_table import ROWS, Choice, cost
from mpca.sim.costs import Costs
from mpca.sim.papers import MODELS, of_paper
from mpca.sim.run import Scenario
from mpca.sim.science.lesson import TASKS, DataLesson, Point, learn, task_of
from mpca.sim.table_costs import TableCosts
from mpca.sim.transports import Paper, Relay, Setting

#: Four agents, and 0.1 s to send a model over a link: exchanges take a few updates.
SCENARIO = Scenario(
    agents=4,
    trainer="mixture",
    task={"rates": [0.004], "seeds": [1], "tested": 1000},
    costs=Costs(step_s=0.02, spread=0.1, rate=1e6, element_bytes=14.4),
    cycles=1_000_000,
    max_time_s=3.0,
)
METHODS = {
    "single": {"name": "single"},
    "sync": {"name": "sync", "tau": 10},
    "mpca": {"name": "mpca"},
    "mpca, delay-corrected": {"name": "mpca", "correction": True, "shards": 6},
    "diloco, eager": {"name": "diloco", "period": 10, "overlap": True, "eager": True, "outer_momentum": 0.6},
}


pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]


def scenario(method: str, **task) -> Scenario:
    agents = 1 if method == "single" else SCENARIO.agents
    return replace(SCENARIO, method=METHODS[method], agents=agents, task={**SCENARIO.task, **task})


@pytest.mark.parametrize("method", METHODS)
def test_a_method_learns_and_the_same_seed_gives_the_same_ledger_and_errors(method: str) -> None:
    first, again = (learn(scenario(method), seed=3, every_s=1.0) for _ in range(2))
    assert first[0].ledger == again[0].ledger
    assert first[1] == again[1]
    assert first[0].status == "max_time"
    logged = [one for one in first[0].records if isinstance(one, MetricsRecord)]
    assert {one.agent for one in logged} == set(range(scenario(method).agents))
    assert all(one.metrics["loss"] > 0 for one in logged)
    points = first[1]
    assert [round(point.t) for point in points[:3]] == [0, 1, 2]
    assert points[0].errors[0] > 0.8
    assert points[-1].errors[0] < (0.7 if method == "sync" else 0.6)
    if method == "sync":  # it waits for others and for the link
        assert 30 < points[-1].updates < 100
    else:
        assert points[-1].updates == pytest.approx(3.0 / 0.021, rel=0.1)


AVERAGES = {"name": "dl4j-averaging", "averaging_frequency": 5, "updater": "average"}


@pytest.mark.parametrize("optimizer", ["adam", "nesterov"])
def test_of_one_agent_whose_optimisers_state_is_exchanged_all_is_as_alone_to_the_bit(optimizer: str) -> None:
    one = replace(SCENARIO, method=AVERAGES, agents=1, task={**SCENARIO.task, "optimizer": optimizer})
    outcome, _ = learn(one, seed=3)
    lesson = DataLesson(task_of(one), 1.0, exchanges_optimizer=True)
    bounds, parameters = lesson.plan(1)
    assert bounds[-1] == (3 * parameters + 1 if optimizer == "adam" else 2 * parameters)
    alone = lesson.trainer(bounds, How.REPLACE, 0, 0)
    for commit in outcome.commits:
        alone.advance(commit.contributors[0]["tau"], ())
    out = np.empty(bounds[-1], np.float32)
    alone.snapshot(0, out)
    np.testing.assert_array_equal(outcome.joint[0], out)
    assert len(outcome.commits) > 2


def test_agents_whose_optimisers_states_are_averaged_learn_the_same_again() -> None:
    told = [
        learn(replace(SCENARIO, method=AVERAGES | {"updater": updater}), seed=3) for updater in ("average", "average", "keep")
    ]
    (first, points), (again, same), (kept, others) = told
    assert (first.ledger, points) == (again.ledger, same)
    assert points[-1].errors[0] < points[0].errors[0] - 0.05
    assert len(first.commits) < 0.6 * len(kept.commits), "three times as much is sent"
    assert points[-1] != others[-1]


def test_runs_in_one_simulation_have_the_errors_that_they_have_alone() -> None:
    together = learn(scenario("mpca", rates=[0.002, 0.006], seeds=[1, 2]), seed=3)
    alone = learn(scenario("mpca", rates=[0.006], seeds=[2]), seed=3)
    assert [point.errors[3:] for point in together[1]] == [point.errors for point in alone[1]]
    assert [(one.cycle, one.stages) for one in together[0].commits] == [(one.cycle, one.stages) for one in alone[0].commits]


SERVED = [
    {"name": "easgd", "tau": 10},
    {"name": "async-ps", "n_push": 3},
    {"name": "softsync", "n": 2},
    {"name": "gradient-sharing", "threshold": 0.004, "least": 0.2, "most": 0.4, "decay": 0.7, "clip": 4.0},
]


@pytest.mark.parametrize("method", SERVED, ids=lambda method: method["name"])
def test_runs_whose_agents_ask_have_the_models_that_they_have_alone_bit_for_bit(method: dict[str, object]) -> None:
    """Also with adaptive thresholds, of which each run has its own."""
    base = replace(SCENARIO, method=method, max_time_s=1.0, costs=replace(SCENARIO.costs, rate=1e7))
    both, one = (
        learn(replace(base, task={**SCENARIO.task, "rates": rates, "seeds": seeds, "tested": 200}), seed=3)
        for rates, seeds in (([0.002, 0.006], [1, 2]), ([0.006], [2]))
    )
    assert len(both[0].exchanges) > 12, "and all of them have moved the joint model"
    assert [(a.t, a.agent, a.staleness) for a in both[0].exchanges] == [(a.t, a.agent, a.staleness) for a in one[0].exchanges]
    assert [point.errors[3:] for point in both[1]] == [point.errors for point in one[1]]
    (together,), (alone,) = both[0].joint, one[0].joint
    assert together.reshape(-1, 4)[:, 3].tobytes() == alone.tobytes()


@pytest.mark.parametrize("correction", [False, True])
def test_runs_of_agents_that_gossip_have_the_models_that_they_have_alone_bit_for_bit(correction: bool) -> None:
    base = replace(SCENARIO, method={"name": "gossip", "tau": 5, "correction": correction}, max_time_s=1.0)
    both, one, again = (
        learn(replace(base, task={**SCENARIO.task, "rates": rates, "seeds": seeds, "tested": 200}), seed=3)
        for rates, seeds in (([0.002, 0.006], [1, 2]), ([0.006], [2]), ([0.006], [2]))
    )
    assert len(both[0].messages) > 8
    assert both[0].ledger == one[0].ledger == again[0].ledger
    assert [point.errors[3:] for point in both[1]] == [point.errors for point in one[1]]
    assert one[1] == again[1]
    assert both[0].mean.reshape(-1, 4)[:, 3].tobytes() == one[0].mean.tobytes()


def test_an_agent_that_asks_by_its_losses_does_so_in_a_run_of_its_own() -> None:
    method = {"name": "easgd", "tau": 1000, "loss_cut": 12.0}
    outcome, points = learn(replace(SCENARIO, method=method, costs=replace(SCENARIO.costs, rate=1e7)), seed=3)
    taus = [one.tau for one in outcome.exchanges if one.agent == 0]
    assert taus[0] == 6, "the first losses are log 10"
    assert taus[-1] >= 9, "the period grows as the loss falls"
    assert points[-1].errors[0] < 0.6
    with pytest.raises(ConfigError, match="one rate and one seed"):
        learn(replace(scenario("mpca", seeds=[1, 2]), method=method), seed=3)


def test_a_point_has_the_errors_of_the_newest_joint_model_once_in_a_while() -> None:
    lesson = DataLesson(task_of(scenario("mpca", tested=500)), every_s=1.0)
    (*edges,), _ = lesson.plan(2)
    flat = lesson.trainer([0, edges[-1]], How.REPLACE, 0, 0).x
    states = [SimpleNamespace(x=flat[a:b].copy()) for a, b in pairwise(edges)]
    for turn, now in enumerate((0.0, 0.5, 1.0, 2.5, 10.0, 30.0)):
        states[turn % 2] = SimpleNamespace(x=states[turn % 2].x * np.float32(0.9))
        joint = SimpleNamespace(states=list(states), complete=True)
        lesson.look(SimpleNamespace(joint=joint, trained_s=now, machine=SimpleNamespace(cycle=turn)))
        if now != 0.5:  # less than a second after the last point
            assert lesson.points[-1].errors == lesson._errors(np.concatenate([state.x for state in states]))
    assert [point.t for point in lesson.points] == [0.0, 1.0, 2.5, 10.0, 30.0]


def test_exchanges_may_cost_what_a_transport_says() -> None:
    task = task_of(SCENARIO)
    assert task.elements == 6922
    setting = Setting(agents=4, model_bytes=1e5, rate=1e6, step_s=0.02)
    costs = TableCosts.of(setting, Relay(), phases=3, shards=3, elements=task.elements)
    short = replace(scenario("mpca", seeds=[1, 2]), costs=costs, max_time_s=1.0)
    alone = replace(scenario("mpca", seeds=[2]), costs=costs, max_time_s=1.0)
    both, one = learn(short, seed=3), learn(alone, seed=3)
    assert [point.errors[1:] for point in both[1]] == [point.errors for point in one[1]]
    assert [record.stages for record in both[0].commits] == [record.stages for record in one[0].commits]


@pytest.mark.parametrize(("optimizer", "row_of"), [("nesterov", "dl4j-averaging-2M"), ("adam", "dl4j-averaging-3M")])
def test_a_round_with_the_optimisers_state_takes_what_the_table_says(optimizer: str, row_of: str) -> None:
    at, elements = of_paper(MODELS["ResNet-110"]), task_of(SCENARIO).elements
    costs = TableCosts.of(at, Paper(), phases=1, shards=1, elements=elements, spread=0.0)
    task = SCENARIO.task | {"optimizer": optimizer}
    long = {"deadline_s": 1e3, "start_timeout_s": 1e3, "finish_s": 1e3, "patience_s": 1e6, "max_time_s": 20.0}
    commits = learn(replace(SCENARIO, agents=8, method=AVERAGES, task=task, costs=costs, **long), seed=3)[0].commits
    (row,) = (each for each in ROWS if each.method == row_of)
    said = cost(row, at, Choice(tau=5), Paper()).period_s
    assert (commits[-1].t - commits[1].t) / (len(commits) - 2) == pytest.approx(said, rel=0.06)


def test_a_run_that_diverges_is_all_wrong_and_the_others_learn() -> None:
    _, points = learn(scenario("mpca", optimizer="sgd", rates=[0.1, 1e6]), seed=3)
    assert points[-1].errors[0] < 0.8
    assert points[-1].errors[1] == 1.0


@pytest.mark.slow
def test_mpca_learns_the_mixture_to_fifteen_percent_sooner_than_one_agent() -> None:
    def reached(method: str) -> float:
        """Seconds until the best of two rates has it."""
        _, points = learn(replace(scenario(method, rates=[0.003, 0.006]), max_time_s=36.0), seed=3)
        return min(point.t for point in points if min(point.errors) < 0.15)

    single = reached("single")
    assert reached("mpca") < 0.9 * single
    assert reached("mpca, delay-corrected") < 0.7 * single


LEARNS = [
    *SERVED,
    {"name": "easgd", "tau": 1000, "loss_cut": 8.0},
    {"name": "gossip", "tau": 5},
    {"name": "gossip", "tau": 5, "correction": True},
]


@pytest.mark.parametrize("method", LEARNS, ids=lambda method: "-".join(map(str, method.values())))
def test_methods_without_cycles_learn_the_mixture_to_forty_percent(method: dict[str, object]) -> None:
    rates = [0.006] if "loss_cut" in method else [0.002, 0.004, 0.008]
    costs = replace(SCENARIO.costs, rate=1e7)
    base = replace(SCENARIO, method=method, costs=costs, max_time_s=5.0, task={**SCENARIO.task, "rates": rates})
    _, points = learn(base, seed=3)
    assert min(min(point.errors) for point in points) < 0.4


def test_every_task_names_a_net_and_data_that_fit() -> None:
    for name in TASKS:
        outcome, points = learn(replace(scenario("mpca", tested=100), trainer=name, max_time_s=0.2), seed=0)
        assert outcome.status == "max_time"
        assert isinstance(points[0], Point)


def test_a_task_that_there_is_not_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'mixture'"):
        learn(replace(SCENARIO, trainer="mixtures"), seed=0)
