"""The papers' tables and figures that formulas give, beside what the papers print."""

from __future__ import annotations

import pytest

from mpca.sim.papers import (
    DISCREPANCY,
    MODELS,
    SPARKNET_TAUS,
    TRAINED,
    deepspark_bound,
    deepspark_sheet,
    deepspark_speedup,
    exchange_line,
    figure_3,
    figure_3_sheet,
    figure_4,
    figure_4_sheet,
    naive_speedup,
    sparknet_speedup,
    table_1,
    table_2,
    table_2_cost,
)
from mpca.sim.sheet import Sheet


def test_table_1_is_a_line() -> None:
    fixed, slope = exchange_line()
    assert fixed == pytest.approx(0.54, abs=0.005)
    assert slope == pytest.approx(12.3, abs=0.05)
    for one in MODELS.values():
        assert fixed + slope * one.b_s == pytest.approx(one.exchange_s, abs=0.14)


@pytest.mark.parametrize("one", MODELS.values(), ids=lambda one: one.name)
def test_table_1_suggests_five_exchanges_of_computing(one: object) -> None:
    assert round(5 * one.exchange_s / one.step_s) == one.tau  # type: ignore[attr-defined]
    assert one.exchange_s / one.step_s == pytest.approx(one.ratio, abs=0.15)  # type: ignore[attr-defined]


def column(sheet: Sheet, name: str, *first: str) -> str:
    (row,) = (row for row in sheet.rows if row[: len(first)] == first)
    return row[sheet.columns.index(name)]


def test_table_1_is_printed_with_both() -> None:
    sheet = table_1()
    assert [row[0] for row in sheet.rows] == ["ResNet-110", "ResNet-34", "ResNet-152", "VGG-A"]
    assert column(sheet, "exchange, s", "VGG-A") == "51.1"
    assert sheet.rows[3][4] == "51.20"
    assert all(len(row) == len(sheet.columns) for row in sheet.rows)


@pytest.mark.parametrize(
    ("model", "method", "share"),
    [
        ("ResNet-110", "sync", 0.833), ("ResNet-110", "easgd", 0.97), ("ResNet-110", "mpca", 1),
        ("ResNet-152", "sync", 0.833), ("ResNet-152", "easgd", 0.95), ("ResNet-152", "mpca", 1),
        ("VGG-A", "sync", 0.5), ("VGG-A", "easgd", 0.9), ("VGG-A", "mpca", 1),
    ],
)  # fmt: skip
def test_table_2s_runs_compute_as_much_as_the_text_says(model: str, method: str, share: float) -> None:
    assert table_2_cost(MODELS[model], method).utilisation == pytest.approx(share, abs=0.025)


def test_table_2_is_printed_with_periods_and_speedups() -> None:
    sheet = table_2()
    assert len(sheet.rows) == 15
    assert column(sheet, "x one GPU", "ResNet-110", "mpca").endswith("5.66")
    assert column(sheet, "x one GPU", "VGG-A", "sync") == "0.91 / 1.09 / -"
    assert column(sheet, "tau", "VGG-A", "easgd") == "95"
    assert column(sheet, "round", "ResNet-110", "mpca") == "1.4s"


def test_speedups_of_table_2() -> None:
    tightest = [[one for one in TRAINED if one.model == name][-1] for name in ("ResNet-110", "ResNet-152")]
    assert [one.speedup("mpca") for one in tightest] == pytest.approx([5.66, 4.67], abs=0.005)
    assert TRAINED[-1].speedup("mpca") is None
    for one in tightest:  # the paper's order at its tightest errors
        assert one.mpca < one.easgd < one.sync < one.mxnet < (one.single or 0)


def test_sparknets_naive_curve_is_amdahls() -> None:
    assert naive_speedup(5, 0) == 5
    assert naive_speedup(5, 0.8) == pytest.approx(1)
    assert naive_speedup(5, 10) == pytest.approx(1 / 10.2)  # its own cluster: 20 s beside 2 s


def test_sparknets_speedup_by_its_equations() -> None:
    # N = 20000 updates of 2 s alone; K machines need 50 rounds of 100 updates, and 20 s between rounds.
    free = figure_3(20000, {(5, 100): 50})[5, 100]
    assert free == 4
    assert sparknet_speedup(free, 100, 10) == pytest.approx(20000 * 2 / ((100 * 2 + 20) * 50))


def test_figure_3_has_a_row_for_each_k_and_the_shortest_rounds_to_the_right() -> None:
    sheet = figure_3_sheet(figure_3(1000, {(1, 1): 1000, (1, 10): 100, (2, 10): 60}))
    assert sheet.columns == ("K", "tau = 10", "tau = 1")
    assert sheet.rows == (("1", "1.00", "1.00"), ("2", "1.67", "-"))


def test_figure_4_takes_the_best_tau() -> None:
    free = {1: 2.0, 10: 3.0, 100: 2.5, 1000: 1.5}
    for overhead, naive, best, tau in figure_4(free, 5, (0.01, 10, 1000)):
        others = [free[one] * one / (one + overhead) for one in free]
        assert best == pytest.approx(max(others))
        assert naive == naive_speedup(5, overhead)
        assert tau == max(free, key=lambda one: free[one] * one / (one + overhead))
    assert [row[3] for row in figure_4_sheet(free).rows][:1] == ["10"]
    assert len(SPARKNET_TAUS) == 9


def test_deepsparks_equation_3_tends_to_equation_4() -> None:
    # n = 16, tau = 100, d = 8.66, S/C = 10, term by term: 1600 / (866 + 22169.6)
    assert deepspark_speedup(16, 100, 8.66, 10) == pytest.approx(1600 / 23035.6)
    assert deepspark_speedup(16, 10**12, 8.66, 10) == pytest.approx(deepspark_bound(16, 8.66))
    assert deepspark_speedup(1, 1, 1, 0) == 1
    assert [round(deepspark_bound(16, one), 2) for one in DISCREPANCY.values()] == [1.85, 1.74, 1.66]
    assert [row[2] for row in deepspark_sheet().rows] == ["0.07", "0.13", "0.27"]
