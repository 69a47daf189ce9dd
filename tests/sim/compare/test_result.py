"""Bytes, times and words of the table."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mpca.methods import METHODS
from mpca.sim.compare.plan import Plan
from mpca.sim.compare.result import Result, result_of, row_of
from mpca.sim.compare.settings import Conf, Entry, Shared
from mpca.sim.papers import MODELS, of_paper
from mpca.sim.transports import Paper
from tests.sim.compare.support import fake, finish

SHARED = Shared(ratios=("ResNet-152", "3.5"), trials=3, rounds=0, updates=1000, single_updates=4000, points=100, seed=7)
CONF = Conf(SHARED, (Entry("one", "single"), Entry("sync", "sync"), Entry("ours", "mpca", control=True)))


@pytest.fixture(scope="module")
def result() -> Result:
    speeds = {"single": 0.001, "sync": 0.005, "mpca": 0.01}
    return result_of(CONF, finish(Plan(CONF), fake(lambda unit, rate, seed: speeds[unit.method["name"]]))[0])


def test_speed_ups_are_over_single_by_medians(result: Result) -> None:
    one, sync, ours = result.rows[:3]
    for single, five, ten in zip(one.times, sync.times, ours.times, strict=True):
        assert single.speedup == 1
        assert five.speedup == pytest.approx(5, rel=0.1)
        assert ten.speedup == pytest.approx(10, rel=0.1)


def test_bytes_are_those_of_the_cycles_until_the_target(result: Result) -> None:
    model = MODELS["ResNet-152"]
    _, sync, ours = result.rows[:3]
    whole = Paper().traffic(of_paper(model), model.size_bytes)
    for row, shards in ((sync, 1), (ours, 3)):
        cycles = int(row.times[-1].median)  # a fake run has a cycle in each update
        assert row.times[-1].agent_bytes == pytest.approx(cycles * (whole.agent_in + whole.agent_out) / shards)
    assert result.rows[0].times[-1].agent_bytes == 0


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"single"}))
def test_every_method_that_exchanges_has_a_row_in_the_table_of_costs(name: str) -> None:
    assert name.startswith(row_of({"name": name}).method)


def test_the_formulas_in_force_are_those_of_the_rows_on_their_transport() -> None:
    entries = (
        Entry("one", "single"),
        Entry("streaming", "diloco", {"overlap": True, "fragments": 3, "phases": 3}),
        Entry("server", "sync-ps", optimizer="sgd"),
    )
    conf = Conf(SHARED, entries)
    found = result_of(conf, finish(Plan(conf), fake(lambda unit, rate, seed: 0.001))[0])
    assert [(one.rows, one.transport) for one in found.formulas] == [
        (("single",), ""),
        (("sync-ps",), "the paper's"),
        (("diloco-streaming",), "the paper's"),
        (("transport the paper's",), ""),
        (("a cycle",), ""),
    ]
    assert "Source: Streaming DiLoCo" in "\n".join(found.lines())
    assert [one["rows"][0] for one in found.to_json()["formulas"]] == [one.rows[0] for one in found.formulas]


def test_an_exchange_that_one_agent_asks_for_is_one_agents_alone() -> None:
    entries = (Entry("one", "single"), Entry("sync", "sync"), *(Entry(name, name) for name in ("easgd", "gradient-sharing")))
    conf = Conf(SHARED, entries)
    found = result_of(conf, finish(Plan(conf), fake(lambda unit, rate, seed: 0.001 * unit.agents))[0])
    model = MODELS["ResNet-152"]
    for row in found.rows[2:4]:
        exchanges = int(row.times[-1].median)
        assert row.times[-1].agent_bytes == pytest.approx(exchanges * 2 * model.size_bytes / 8)
    said = [(one.rows, one.transport) for one in found.formulas]
    assert (("easgd",), "driver's port") in said
    assert (("transport driver's port",), "") in said
    (shared,) = (rows for rows, _ in said if "gradient-sharing" in rows)
    assert shared == ("async-ps", "softsync", "gradient-sharing"), "in 32 bits an element"


def test_runs_with_schedules_of_their_own_have_a_middle_as_far_as_all_go(result: Result) -> None:
    first, *others = result.rows[1].curves
    short = replace(first, times=first.times[:40], updates=first.updates[:40], errors=first.errors[:40])
    assert len(replace(result.rows[1], curves=(first, short, *others)).middle()) == 40


def test_conditions_are_named(result: Result) -> None:
    assert [sheet.title for sheet in result.sheets()] == [
        "K = 8, b/C = 2.31 (ResNet-152), paper transport",
        "K = 8, b/C = 3.50, paper transport",
    ]


def test_the_notes_stand_below_the_last_table_and_say_what_the_numbers_are(result: Result) -> None:
    first, last = result.sheets()
    assert first.notes == ()
    text = " ".join(last.notes)
    for words in (
        "simulated, and has no codec",
        "5 seeds that chose nothing",
        "2 other seeds",
        "25 % and 75 % of 4000 updates",
    ):
        assert words in text
    assert all(row[-1] == "simulated, no codec" for sheet in result.sheets() for row in sheet.rows)


def test_the_middle_curve_is_the_median_of_the_runs(result: Result) -> None:
    time, updates, error = result.rows[1].middle()[50]
    assert (time, updates) == (500, 500)
    assert error == pytest.approx(math.exp(-2.5))


def test_json_has_everything_but_curves(result: Result) -> None:
    values = result.to_json()
    assert values["compare"]["seed"] == 7
    assert [row["label"] for row in values["rows"]] == ["one", "sync", "ours"] * 2
    assert all("curves" not in row for row in values["rows"])
    assert len(values["targets"]) == 2
