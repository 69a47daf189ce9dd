"""An "auto" number of shards on real executors: three on loopback, more behind slow links."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from mpca import data
from mpca.cli.bench.net.network import Network
from mpca.cli.bench.net.standalone import Standalone
from mpca.cli.bench.run.place import Place
from mpca.records import AgentRecord, BeginRecord, CycleRecord, Record, RunRecord, read_records
from tests.bench.support import needs_namespaces
from tests.spark.jobs import skewed
from tests.spark.node_driver import ready_driver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(580)]

AGENTS = 3
SIZE = 6 << 20
CYCLES = 30
RATE, BYTES_A_SECOND = "30mbit", 30e6 / 8


def of(kind: type[Record], records: list[Record]) -> list:
    return [one for one in records if isinstance(one, kind)]


def test_digits_on_loopback_keep_three_shards_and_the_record_says_why(engine) -> None:
    rows, labels = data.load("digits", "train").tensors
    work = (rows.reshape(len(rows), -1).numpy(), labels.numpy(), 0.05, 0.004)
    told = engine(skewed, *work, sets=("method.shards=auto", "objectives.max_cycles=12"))
    assert told.ended.exit_code == 0, told.ended.reason
    (begin,) = of(BeginRecord, told.records)
    print(begin)
    assert begin.shards == 3
    assert 0 < begin.fixed_s < begin.period_s
    assert begin.period_s == pytest.approx(3 * begin.fixed_s + begin.wire_s)
    assert all(one.cut is None for one in told.run.orders)
    assert {one.shard for one in told.cycles} == {0, 1, 2}


@pytest.mark.root
@pytest.mark.slow
def test_a_model_behind_slow_links_is_cut_anew_before_the_first_step(tmp_path: Path) -> None:
    needs_namespaces()
    workers = [f"w{number}" for number in range(AGENTS)]
    with Network(["master", "driver", *workers]) as net, Standalone(net, "master", workers, tmp_path, "3g") as daemons:
        place = Place(work_dir=str(tmp_path), agents=AGENTS, master=daemons.url, address=net.address("driver"))
        log = tmp_path / "overlapped.log"
        arguments = [json.dumps(asdict(place)), str(tmp_path / "run"), str(SIZE), str(CYCLES), "auto"]
        with ready_driver(net, "tests.spark.overlapped", arguments, log) as driver:
            net.shape(RATE, but=["master"])  # executors are there: their start needs no slow link
            driver.communicate("go\n")
        assert driver.returncode == 0, log.read_text() + daemons.executor_log()

    records = read_records(tmp_path / "run" / "records.jsonl").records
    (begin,) = of(BeginRecord, records)
    print(begin)
    assert begin.shards > 3
    assert begin.wire_s == pytest.approx(2 * SIZE / BYTES_A_SECOND, rel=0.6), "twice the model at the links' rate"
    assert begin.shards <= begin.wire_s / 4 / begin.fixed_s < begin.shards + 1 or begin.shards == 24
    cycles = of(CycleRecord, records)
    assert [one.shard for one in cycles] == [one.cycle % begin.shards for one in cycles]
    assert all(sorted(one.contributors) == list(range(AGENTS)) for one in cycles[4:])
    agents = of(AgentRecord, records)
    assert [one.event for one in agents if one.event in ("started", "lost", "replaced")] == ["started"] * AGENTS
    assert of(RunRecord, records)[0].shards == 3, "it began with three"
