"""An "auto" number of shards on real executors: few on loopback, more behind slow links."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from mpca import data
from mpca.records import AgentRecord, BeginRecord, CycleRecord, Record, RunRecord, read_records
from mpca.sim.relay import PATIENCE_S
from tests.spark.jobs import skewed
from tests.spark.overlapped import BYTES_A_SECOND, overlapped_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(580)]

AGENTS = 3
SIZE = 6 << 20
CYCLES = 30


def of(kind: type[Record], records: list[Record]) -> list:
    return [one for one in records if isinstance(one, kind)]


@pytest.mark.slow
@pytest.mark.long
def test_digits_on_loopback_are_cut_as_the_record_says(engine) -> None:
    rows, labels = data.load("digits", "train").tensors
    work = (rows.reshape(len(rows), -1).numpy(), labels.numpy(), 0.05, 0.004)
    told = engine(skewed, *work, sets=("method.shards=auto", "objectives.max_cycles=24"))
    assert told.ended.exit_code == 0, told.ended.reason
    (begin,) = of(BeginRecord, told.records)
    print(begin)
    assert begin.shards == min(max(3, round((12 * begin.wire_s / begin.fixed_s) ** 0.5)), 24)
    assert 0 < begin.fixed_s < begin.period_s
    assert begin.period_s == pytest.approx(begin.shards * begin.fixed_s + begin.wire_s)
    assert all(one.cut is None for one in told.run.orders) == (begin.shards == 3)
    assert {one.shard for one in told.cycles} == set(range(begin.shards))
    took = [
        one.stages["broadcast"]["end"] - one.stages["broadcast"]["start"] for one in told.cycles if "broadcast" in one.stages
    ]
    assert median(took) < PATIENCE_S, "what the driver brings came by itself: nobody has waited until it asks"


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.quiet
def test_a_model_behind_slow_links_is_cut_anew_before_the_first_step(tmp_path: Path) -> None:
    run_dir = overlapped_run(tmp_path, AGENTS, SIZE, CYCLES, "auto")
    records = read_records(run_dir / "records.jsonl").records
    (begin,) = of(BeginRecord, records)
    print(begin)
    assert begin.shards > 3
    assert begin.wire_s == pytest.approx(2 * SIZE / BYTES_A_SECOND, rel=0.3), "twice the model at the links' rate"
    assert begin.shards == min(round((12 * begin.wire_s / begin.fixed_s) ** 0.5), 24)
    cycles = of(CycleRecord, records)
    assert [one.shard for one in cycles] == [one.cycle % begin.shards for one in cycles]
    assert all(sorted(one.contributors) == list(range(AGENTS)) for one in cycles[4:])
    agents = of(AgentRecord, records)
    assert [one.event for one in agents if one.event in ("started", "lost", "replaced")] == ["started"] * AGENTS
    assert of(RunRecord, records)[0].shards == 3, "it began with three"
