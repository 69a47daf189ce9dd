"""Fair by construction: what is chosen, on which seeds, and with how many trials, whatever the runs bring."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from mpca.sim.compare.fairness import MORE, Curve
from mpca.sim.compare.plan import Plan
from mpca.sim.compare.result import result_of
from mpca.sim.compare.settings import Conf, Entry, Shared
from mpca.sim.compare.unit import Unit
from tests.sim.compare.support import fake, finish, peak

SINGLE = Entry("single", "single")
SYNC = Entry("sync", "sync", tune={"tau": (5, 10, 20)})
MPCA = Entry("mpca", "mpca", numbers={"gamma": 0.5}, tune={"shards": (3, 6, 12)})
EMA = Entry("EMA", "single", tune={"ema": (0.9, 0.95, 0.975)}, control=True)
BATCH = Entry("K-batch", "single", k_batch=True, control=True)
CONF = Conf(
    Shared(ratios=("ResNet-110", "VGG-A"), trials=9, rounds=6, updates=1000, single_updates=4000, points=100),
    (SINGLE, EMA, BATCH, SYNC, MPCA),
)


def learn(unit: Unit, rate: float, seed: int) -> float:
    """`sync` has its best rate beyond the first grid, and its best tau too."""
    if unit.method["name"] == "sync":
        return 0.004 * peak(rate, 0.06) * peak(unit.method["tau"], 2) * (1 + seed % 7 / 100)
    if unit.method["name"] == "mpca":
        return 0.004 * peak(rate, 0.004) * peak(unit.method["shards"], 6)
    average = peak(1 / (1 - unit.method["ema"]), 20) if unit.method["ema"] else 0
    return 0.001 * peak(rate, 0.003) * (1 + average + unit.batch / 100)


def test_every_method_of_a_condition_has_the_same_number_of_trials() -> None:
    progress, _ = finish(Plan(CONF), fake(learn))
    counts = {(one.agents, one.ratio): Counter[int]() for one in progress.chosen}
    for one in progress.chosen:
        counts[one.agents, one.ratio][one.trials] += 1
    assert len(progress.chosen) == 10
    assert all(len(some) == 1 for some in counts.values()), counts
    assert min(min(some) for some in counts.values()) > 9, "some optimum was outside"
    assert all((one.trials - 9) % MORE == 0 for one in progress.chosen)


def test_an_optimum_outside_the_grid_is_found() -> None:
    progress, _ = finish(Plan(CONF), fake(learn))
    for one in progress.chosen:
        assert one.edges == ()
        if one.entry is SYNC:
            assert 0.03 <= one.trial.rate <= 0.12
            assert one.trial.knobs["tau"] in (1, 2, 3)


def test_an_edge_that_is_left_is_said() -> None:
    short = replace(CONF, shared=replace(CONF.shared, rounds=0))
    progress, _ = finish(Plan(short), fake(learn))
    assert {one.entry.label: one.edges for one in progress.chosen}["sync"] == ("rate", "tau")
    row = next(row for row in result_of(short, progress).rows if row.label == "sync")
    assert row.edges == ("rate", "tau")


def test_no_reported_seed_is_among_those_that_choose() -> None:
    plan = Plan(CONF)
    progress, units = finish(plan, fake(learn))
    assert len(plan.reported) == 5
    assert not set(plan.reported) & set(plan.tuning)
    reported = {one.unit.key for one in progress.chosen}
    assert {unit.seeds for unit in units if unit.key in reported} == {plan.reported}
    assert {unit.seeds for unit in units if unit.key not in reported} == {plan.tuning}
    assert not {unit.schedule for unit in units if unit.key in reported} & {
        unit.schedule for unit in units if unit.key not in reported
    }


def test_reported_runs_change_nothing_that_was_chosen() -> None:
    plan = Plan(CONF)

    def turned(unit: Unit, rate: float, seed: int) -> float:
        """What is best for other seeds is worst for these."""
        return 1e-6 / learn(unit, rate, seed) if seed in plan.reported else learn(unit, rate, seed)

    before, _ = finish(plan, fake(learn))
    after, _ = finish(plan, fake(turned))
    assert [(one.trial, one.trials) for one in before.chosen] == [(one.trial, one.trials) for one in after.chosen]
    assert before.targets == after.targets
    assert [one.curves for one in before.chosen] != [one.curves for one in after.chosen]


def test_targets_come_from_single_alone() -> None:
    others_fail = fake(lambda unit, rate, seed: learn(unit, rate, seed) if unit.method["name"] == "single" else 1e-9)
    faster_controls = fake(
        lambda unit, rate, seed: learn(unit, rate, seed) * (9 if unit.method.get("ema") or unit.batch > 16 else 1)
    )
    plain = finish(Plan(CONF), fake(learn))[0].targets
    assert len(plain) == 2
    assert finish(Plan(CONF), others_fail)[0].targets == plain
    assert finish(Plan(CONF), faster_controls)[0].targets == plain


def test_not_reached_stays() -> None:
    conf = replace(CONF, entries=(SINGLE, SYNC))
    progress, _ = finish(Plan(conf), fake(lambda unit, rate, seed: 1e-9 if unit.method["name"] == "sync" else 1e-3))
    rows = [row for row in result_of(conf, progress).rows if row.label == "sync"]
    assert len(rows) == 2
    for row in rows:
        assert [one.text() for one in row.times] == ["not reached"] * 2
        assert [one.speedup for one in row.times] == [None, None]
        assert row.to_json()["times"][0]["median"] is None


def test_a_median_counts_runs_that_did_not_get_there() -> None:
    conf = replace(CONF, shared=replace(CONF.shared, ratios=("VGG-A",)), entries=(SINGLE, SYNC))
    reported = Plan(conf).reported

    def some(unit: Unit, rate: float, seed: int) -> float:
        fast = learn(unit, rate, seed)
        return 1e-9 if unit.method["name"] == "sync" and seed in reported[:2] else fast

    row = result_of(conf, finish(Plan(conf), fake(some))[0]).rows[1]
    assert (row.times[0].reached, row.times[0].runs) == (3, 5)
    assert row.times[0].most == math.inf > row.times[0].median
    assert "..., 3 of 5)" in row.times[0].text()


def test_one_agent_is_simulated_once_for_all_bandwidths() -> None:
    _, units = finish(Plan(CONF), fake(learn))
    assert len(units) == len({unit.key for unit in units})
    assert {unit.ratio for unit in units if unit.method["name"] == "single"} == {"0"}
    first = [unit for unit in units if unit.method["name"] == "single" and unit.batch == 16 and not unit.method["ema"]]
    assert sum(len(unit.rates) == 9 for unit in first) == 1
    batch = [unit for unit in units if unit.batch == 128]
    assert {(unit.agents, unit.updates) for unit in batch} == {(1, 1000)}


def test_all_runs_are_evaluated_equally_often() -> None:
    _, units = finish(Plan(CONF), fake(learn))
    assert {unit.points / unit.updates for unit in units} == {0.1}
    assert {unit.updates for unit in units} == {1000, 4000}


def test_the_order_in_which_units_end_changes_nothing() -> None:
    plain, units = finish(Plan(CONF), fake(learn))
    other, same = finish(Plan(CONF), fake(learn), one_by_one=True)
    assert other.chosen == plain.chosen
    assert {unit.key for unit in same} == {unit.key for unit in units}


def test_progress_knows_what_is_left() -> None:
    plan, done = Plan(CONF), dict[str, list[Curve]]()
    while missing := list((progress := plan.look(done)).missing.values()):
        assert len(progress.known) == len(done) + len(progress.missing)
        assert progress.later <= 10
        done[missing[0].key] = fake(learn)(missing[0])
    assert (len(progress.known), progress.later) == (len(done), 0)


def test_a_unit_is_named_by_all_that_it_has() -> None:
    _, units = finish(Plan(CONF), fake(learn))
    one = units[0]
    assert replace(one, seeds=(9,)).key != one.key
    assert replace(one, contested=1).key != one.key
    assert replace(one, rates=one.rates).key == one.key
