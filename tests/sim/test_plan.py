"""Plans: every method at any K in seconds, and what is said at the end."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace

import pytest

from mpca.sim.cost_table import ROWS, Choice
from mpca.sim.papers import GIGABIT, MODELS
from mpca.sim.plan import growth_sheet, method_sheet, plan, to_json, verdict
from mpca.sim.transports import COORDINATED, Relay, Setting

AT = Setting(8, 223 << 20, 0.809, GIGABIT)


def test_every_k_up_to_1024_in_seconds() -> None:
    began = time.process_time()
    rows = plan(AT, range(2, 1025), Choice(), Relay())
    assert time.process_time() - began < 10
    assert len(rows) == 1023 * len(ROWS)
    assert all(math.isfinite(one.cost.period_s) and 0 < one.cost.utilisation <= 1 for one in rows)


def test_a_row_as_json_has_its_units() -> None:
    rows = {(one.name, one.transport): to_json(one) for one in plan(AT, (8,), Choice(), Relay())}
    found = rows["mpca", "relay"]
    assert found["agents"] == 8
    assert found["shards"] == 3
    assert found["updates_per_s"] == pytest.approx(8 * found["utilisation"] / 0.809)
    a_round = found["agent_in_bytes_per_s"] * found["period_s"]
    assert a_round == pytest.approx(15 / 8 * (223 << 20))
    assert found["agent_bytes_per_day"] == pytest.approx(2 * a_round / found["period_s"] * 86400)
    assert rows["single", "none"]["agents"] == 1
    assert rows["ddp", "ring"]["peer"] is True
    assert rows["mpca, auto shards", "relay"]["auto_shards"] is True
    json.dumps(list(rows.values()), allow_nan=False)


def test_one_k_is_a_table_of_methods() -> None:
    sheet = method_sheet(AT, plan(AT, (8,), Choice(), Relay()))
    assert len(sheet.rows) == len(ROWS)
    assert all(len(row) == len(sheet.columns) for row in sheet.rows)
    assert sheet.title == "K = 8, 223.0 MiB at 1 Gbit/s, 809ms an update: b/C = 2.31; float32, no codec"
    assert sheet.rows[0] == ("single", "-", "-", "-", "-", "-", "100 %", "-", "-", "-", "-")


def test_several_k_are_columns() -> None:
    sheet = growth_sheet(plan(AT, (2, 8), Choice(tau=10), Relay()))
    assert sheet.columns == ("method", "transport", "K = 2", "K = 8")
    assert len(sheet.rows) == len(ROWS) - 1  # without single
    assert all(len(row) == 4 for row in sheet.rows)
    (sync,) = (row for row in sheet.rows if row[0] == "sync")
    assert sync[2].startswith("10 ")


def test_one_agent_is_no_cluster() -> None:
    assert verdict(replace(AT, agents=1), Choice(), Relay()) == "One agent is no cluster: nothing is gained."


def test_where_plain_training_computes_it_is_advised() -> None:
    said = verdict(replace(AT, rate=100 * GIGABIT), Choice(), Relay())
    assert said.startswith("K = 8: worth it, and without mpca, if a batch as many times as large still helps your model")
    assert "8.0 times the samples" in said


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("ResNet-110", ("worth a try", "once in 14 updates", "about 15 (ResNet-110)", "1.6 to 5.7 times")),
        ("ResNet-152", ("worth a try", "once in 24 updates", "about 25 (ResNet-152)", "2.3 to 4.7 times")),
        ("VGG-A", ("only where the machines stand there anyway", "once in 87 updates", "about 90 (VGG-A)", "1.5 to 2.5 times")),
    ],
)
def test_the_papers_own_models_say_what_the_paper_measured(model: str, words: tuple[str, ...]) -> None:
    one = MODELS[model]
    said = verdict(Setting(8, one.size_bytes, one.step_s, GIGABIT), Choice(), COORDINATED["paper"])
    for word in words:
        assert word in said
    assert "nobody has measured" not in said
    assert said.endswith("only a run can tell.")


def test_what_nobody_measured_is_said() -> None:
    assert "With 16 nobody has measured it." in verdict(replace(AT, agents=16), Choice(), Relay())
    slow = verdict(replace(AT, rate=GIGABIT / 100), Choice(), Relay())
    assert "probably not worth it" in slow
    assert "about 90" in slow


@pytest.mark.parametrize(
    ("at", "limit"),
    [
        (AT, "the links' bandwidth"),
        (replace(AT, driver_rate=GIGABIT / 10), "the links' bandwidth"),
        (replace(AT, rate=20 * GIGABIT, engine_rate=GIGABIT / 10, step_s=0.01), "what this engine carries (100 Mbit/s)"),
        (replace(AT, agents=1024), "the links' bandwidth"),
        (replace(AT, agents=1024, model_bytes=1e7, step_s=0.1), "the number of messages at the driver"),
        (replace(AT, model_bytes=1e6, step_s=1e-3), "the fixed time of a cycle"),
    ],
)
def test_the_limit_is_named(at: Setting, limit: str) -> None:
    assert f"What limits it most is {limit}." in verdict(at, Choice(), Relay())
