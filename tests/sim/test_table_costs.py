"""The production driver and agents in virtual time, with a transport's formulas as costs."""

from __future__ import annotations

from statistics import fmean

import pytest

from mpca.records import CycleRecord
from mpca.sim.cost_table import ROWS, Choice, cost
from mpca.sim.papers import MODELS, of_paper
from mpca.sim.run import Scenario, simulate
from mpca.sim.table_costs import TableCosts
from mpca.sim.transports import Coordinated, Paper, Relay, Setting

pytestmark = pytest.mark.long

ELEMENTS = 240


def period_s(at: Setting, tau: int) -> float:
    """Seconds of a round of `sync`, from the ledger of a run."""
    commits = run(at, Relay(), {"name": "sync", "tau": tau}, 1, 1, 0.0)
    return (commits[-1].t - commits[0].t) / (len(commits) - 1)


def measured_tau(at: Setting, on: Coordinated, method: dict[str, object], shards: int, phases: int, spread: float) -> float:
    """Mean of the updates between two exchanges of a shard, from the ledger of a run."""
    commits = run(at, on, method, shards, phases, spread)
    return fmean(one["tau"] for commit in commits for one in commit.contributors.values())


def run(at: Setting, on: Coordinated, method: dict[str, object], shards: int, phases: int, spread: float) -> list[CycleRecord]:
    costs = TableCosts.of(at, on, phases, shards, ELEMENTS, spread)
    scenario = Scenario(
        agents=8, min_agents=8, method=method, cycles=40, parameters=ELEMENTS, buffers=0, costs=costs,
        deadline_s=1e3, start_timeout_s=1e3, finish_s=1e3, patience_s=1e6,
    )  # fmt: skip
    return simulate(scenario, seed=1).commits[10:]


@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_resnet_110_is_pulled_13_to_17_times_at_the_papers_exchange_times(spread: float) -> None:
    assert 13 <= measured_tau(of_paper(MODELS["ResNet-110"]), Paper(), {"name": "mpca"}, 3, 3, spread) <= 17


@pytest.mark.parametrize(("model", "n"), [("ResNet-110", 15), ("ResNet-152", 25), ("VGG-A", 90)])
@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_the_three_ratios(model: str, n: int, spread: float) -> None:
    assert measured_tau(of_paper(MODELS[model]), Paper(), {"name": "mpca"}, 3, 3, spread) == pytest.approx(n, rel=0.1)


@pytest.mark.parametrize(("shards", "phases"), [(3, 3), (3, 2), (3, 1), (12, 3)])
@pytest.mark.parametrize("model", ["ResNet-110", "VGG-A"])
def test_the_formula_of_mpca_says_what_the_driver_does(model: str, shards: int, phases: int) -> None:
    one = MODELS[model]
    at = Setting(8, one.size_bytes, one.step_s, 1e9 / 8, prepare_rate=1e15)  # the simulator prepares in no time
    (row,) = (each for each in ROWS if (each.method, each.shards) == ("mpca", None))
    said = cost(row, at, Choice(shards=shards, phases=phases), Relay()).tau
    found = measured_tau(at, Relay(), {"name": "mpca", "shards": shards, "phases": phases}, shards, phases, 0.1)
    assert found == pytest.approx(said, rel=0.25)


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.5])
@pytest.mark.parametrize("model", ["ResNet-152", "VGG-A"])
@pytest.mark.parametrize(
    ("row_of", "method", "key"),
    [
        ("sync", {"name": "sync"}, "tau"),
        ("dl4j-averaging", {"name": "dl4j-averaging"}, "averaging_frequency"),
        ("diloco", {"name": "diloco"}, "period"),
        ("sync-easgd", {"name": "sync-easgd"}, "tau"),
        ("overlap-local-sgd", {"name": "overlap-local-sgd"}, "tau"),
        ("diloco-streaming", {"name": "diloco", "overlap": True}, "period"),
        ("diloco-eager", {"name": "diloco", "overlap": True, "eager": True}, "period"),
        ("sync-ps", {"name": "sync-ps"}, ""),
    ],
)
def test_who_waits_and_who_overlaps(row_of: str, method: dict[str, object], key: str, model: str, factor: float) -> None:
    """Rounds are whole updates in the simulator, so that one update is the tolerance."""
    at = of_paper(MODELS[model])
    tau = round(factor * Paper().exchange_s(at, at.model_bytes) / at.step_s) if key else 1
    commits = run(at, Paper(), method | ({key: tau} if key else {}), 1, 1, 0.0)
    (row,) = (each for each in ROWS if (each.method, each.transport) == (row_of, None))
    said = cost(row, at, Choice(tau=tau, shards=1, phases=1), Paper()).period_s
    assert (commits[-1].t - commits[0].t) / (len(commits) - 1) == pytest.approx(said, abs=at.step_s)


@pytest.mark.parametrize(("tau", "step_s"), [(5, 0.095), (50, 0.095), (1, 0.01)])
def test_the_formula_of_sync_says_what_the_driver_does(tau: int, step_s: float) -> None:
    at = Setting(8, MODELS["ResNet-110"].size_bytes, step_s, 1e9 / 8, prepare_rate=1e15, copy_rate=1e15)
    (row,) = (each for each in ROWS if each.method == "sync")
    assert period_s(at, tau) == pytest.approx(cost(row, at, Choice(tau=tau), Relay()).period_s, rel=0.03)


@pytest.mark.parametrize("model", ["ResNet-110", "VGG-A"])
@pytest.mark.parametrize("name", ["easgd", "easgd, seldom", "async-ps", "softsync", "gradient-sharing"])
def test_the_formulas_of_a_server_say_what_the_driver_does(name: str, model: str) -> None:
    """In a ring whose turns are short or long; an agent's round is K exchanges."""
    at, method = of_paper(MODELS[model]), name.partition(",")[0]
    tau = 300 if "seldom" in name else 20 if method == "easgd" else 1
    costs = TableCosts.of(at, Paper(), 1, 1, ELEMENTS, 0.0)
    scenario = Scenario(
        agents=8, min_agents=8, method={"name": method} | ({"tau": tau} if method == "easgd" else {}), cycles=160, costs=costs,
        parameters=ELEMENTS, buffers=0, deadline_s=1e4, start_timeout_s=1e4, finish_s=1e4, patience_s=1e6,
    )  # fmt: skip
    mine = [one.t for one in simulate(scenario, seed=1).exchanges[80:] if one.agent == 3]
    row = next(each for each in ROWS if (each.method, each.transport, each.peer) == (method, "server", False))
    said = cost(row, at, Choice(tau=tau), Paper()).period_s
    assert (mine[-1] - mine[0]) / (len(mine) - 1) == pytest.approx(said, rel=0.02)
