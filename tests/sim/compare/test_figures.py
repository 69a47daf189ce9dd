"""The papers' figures: what they print follows from what was simulated, and a claim that breaks is said to."""

from __future__ import annotations

from itertools import pairwise

import pytest

from mpca.sim.compare.figure_types import Bars, Chart, Shown
from mpca.sim.compare.figures import FIGURES
from mpca.sim.compare.plan import Plan, Progress
from mpca.sim.compare.settings import Conf
from mpca.sim.compare.unit import Unit
from tests.sim.compare.support import Learn, fake, finish

#: What no simulation stands behind in tests: speeds of learning.
SPEEDS = {"single": 0.0005, "async-ps": 0.001, "sync": 0.002, "easgd": 0.003, "mpca-paper": 0.004}


def made(name: str, learn: Learn) -> Shown:
    def simulate(conf: Conf) -> Progress:
        return finish(Plan(conf), fake(learn))[0]

    return FIGURES[name].make(simulate)


def by_method(unit: Unit, rate: float, seed: int) -> float:
    return SPEEDS[unit.method["name"]] * (1 if unit.agents == 1 else 0.6 + unit.agents / 20) * (0.5 if unit.contested else 1)


def never(conf: Conf) -> Progress:
    raise AssertionError("nothing is to be simulated")


@pytest.mark.parametrize("name", ["9", "table1", "table2", "deepspark"])
def test_what_is_a_formula_or_a_schedule_needs_no_training(name: str) -> None:
    shown = FIGURES[name].make(never)
    assert not FIGURES[name].folder
    assert shown.sheets
    assert shown.drawn
    assert all(len(row) == len(sheet.columns) for sheet in shown.sheets for row in sheet.rows)
    assert [one.holds for one in shown.claims] == [name != "deepspark"] * len(shown.claims)


def test_every_figure_names_its_paper_and_section_in_one_line() -> None:
    for figure in FIGURES.values():
        assert "\n" not in figure.line
        assert ", section " in figure.source
        assert any(word in figure.how for word in ("imulated", "formula", "Trained here", "equations"))


def test_figure_9_has_all_stages_of_its_cycles_and_what_every_agent_does() -> None:
    shown = FIGURES["9"].make(never)
    (drawn,) = shown.drawn
    assert isinstance(drawn, Bars)
    assert {drawn.lanes[lane] for lane, *_ in drawn.bars} == {"broadcast", "prepare", "reduce", "agent 0", "agent 1", "agent 2"}
    for agent in range(3):
        bars = sorted(bar[1:3] for bar in drawn.bars if bar[0] == 3 + agent)
        assert all(before[1] <= after[0] for before, after in pairwise(bars))
    assert [row[1] for row in shown.sheets[0].rows] == ["0", "1", "2"] * 2


def test_figure_13_compares_the_order_with_the_papers() -> None:
    shown = made("13", by_method)
    assert [sheet.title[:5] for sheet in shown.sheets] == ["K = 2", "K = 4", "K = 8"]
    assert all(one.holds for one in shown.claims)
    alike = made("13", lambda unit, rate, seed: 0.0005 if unit.agents == 1 else 0.003)
    assert alike.claims[-1].line().startswith("BREAKS from the paper: 13c")


def test_what_was_not_reached_in_a_short_time_breaks_nothing() -> None:
    slow = {"single": 0.001, "async-ps": 0.0004, "sync": 0.0005, "easgd": 0.0012, "mpca-paper": 0.0012}
    shown = made("13", lambda unit, rate, seed: slow[unit.method["name"]])
    assert [one.holds for one in shown.claims] == [None] * 5
    assert shown.claims[3].line().startswith("Undecided: MXNet before one GPU. Here: to ")


def test_figure_10a_wants_a_slow_start_and_a_fast_end_of_what_is_extrapolated() -> None:
    shown = made("10a", lambda unit, rate, seed: {1: 0.0005, 8: 0.004}[unit.agents] * (1 + unit.method.get("gamma", 0)))
    assert [one.holds for one in shown.claims] == [False, True]
    assert "gamma 0.7" in shown.claims[1].found


def test_figure_10c_slows_three_agents_down() -> None:
    seen: set[tuple[int, bool]] = set()

    def learn(unit: Unit, rate: float, seed: int) -> float:
        if unit.agents > 1:
            seen.add((unit.contested, unit.method["weighted"]))
        return by_method(unit, rate, seed) * (1 if unit.method.get("weighted", True) else 0.7)

    (claim,) = made("10c", learn).claims
    assert claim.holds
    assert seen == {(0, True), (3, True), (3, False)}


def test_sparknets_squares_are_updates_of_one_machine_over_parallel_updates() -> None:
    def learn(unit: Unit, rate: float, seed: int) -> float:
        return 0.003 * {1: 1, 2: 1.5, 5: 2.5}[unit.agents] / (1 + unit.method.get("tau", 0) / 1000)

    (sheet,) = (shown := made("sparknet-3", learn)).sheets
    assert [row[0] for row in sheet.rows] == ["1", "2", "5"]
    assert set(sheet.rows[0][1:]) == {"1.00"}
    assert float(sheet.rows[2][-1]) == pytest.approx(2.5, rel=0.05)
    assert float(sheet.rows[2][1]) == pytest.approx(2.5 / 1.5, rel=0.05)
    assert [one.holds for one in shown.claims] == [True, False, True]
    four = made("sparknet-4", learn)
    assert [row[0] for row in four.sheets[0].rows] == ["0.001", "0.01", "0.1", "1", "10", "100"]
    assert all(one.holds for one in four.claims)
    (chart,) = four.drawn
    assert isinstance(chart, Chart)
    assert chart.log


def test_what_was_not_reached_has_no_square() -> None:
    (sheet,) = made("sparknet-3", lambda unit, rate, seed: 1e-9 if unit.method.get("tau") == 500 else 0.003).sheets
    assert [row[1] for row in sheet.rows] == ["1.00", "-", "-"]


@pytest.mark.slow
def test_figure_10b_measures_what_a_replaced_shard_does() -> None:
    shown = FIGURES["10b"].make(never)
    assert [row[0] for row in shown.sheets[0].rows] == ["1", "2", "5", "15", "25", "50", "90", "150", "300"]
    errors = [float(row[2].rstrip(" %")) for row in shown.sheets[0].rows]
    assert errors[-1] < errors[0] / 1.5, "the mean learns"
