"""That stages overlap, and that nobody stops for them: on shaped links, from the time stamps of a run's own records.

Links of 30 Mbit/s make reduce and broadcast long enough to be seen beside each other; agents wait instead of computing.
"""

from __future__ import annotations

import json
import statistics
from itertools import pairwise
from pathlib import Path

import pytest

from mpca.cli.bench.figures import overlap_share
from mpca.records import CycleRecord, RunRecord, read_records
from tests.spark.overlapped import overlapped_run

pytestmark = [pytest.mark.spark, pytest.mark.root, pytest.mark.slow, pytest.mark.quiet, pytest.mark.timeout(580)]

AGENTS = 3
SIZE = 6 << 20
CYCLES = 12
#: The pipeline is full from here on.
STEADY = 4


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run, with the steps of its agents beside the records."""
    return overlapped_run(tmp_path_factory.mktemp("overlap"), AGENTS, SIZE, CYCLES, 3)


@pytest.fixture(scope="module")
def cycles(run_dir: Path) -> list[CycleRecord]:
    records = read_records(run_dir / "records.jsonl").records
    found = [one for one in records if isinstance(one, CycleRecord)]
    assert len(found) >= CYCLES
    return found


def test_reduce_and_broadcast_of_one_cycle_lie_inside_each_other(cycles: list[CycleRecord]) -> None:
    shares = [overlap_share(one.stages) for one in cycles[STEADY:CYCLES]]
    assert min(shares) >= 0.5, shares


def test_the_three_stages_of_a_cycle_are_of_three_shards(cycles: list[CycleRecord]) -> None:
    for one in cycles[STEADY:CYCLES]:
        shards = {name: stage["shard"] for name, stage in one.stages.items()}
        assert shards == {"reduce": one.cycle % 3, "prepare": (one.cycle - 1) % 3, "broadcast": (one.cycle - 2) % 3}


def test_the_driver_prepares_while_executors_reduce(cycles: list[CycleRecord]) -> None:
    inside = [
        one.stages["prepare"]["start"] < one.stages["reduce"]["end"] and one.stages["prepare"]["end"] <= one.t
        for one in cycles[STEADY:CYCLES]
    ]
    assert all(inside)


def test_agents_are_asked_for_their_next_shard_before_the_sum_is_made(cycles: list[CycleRecord]) -> None:
    """And late in it, so that snapshots are not older than they need be: in the median an agent hands over in its last part.

    What a cycle's record says of pauses is of the freeze for the cycle after.
    """
    early = [
        (one.stages["reduce"]["end"] - start) / (one.stages["reduce"]["end"] - one.stages["reduce"]["start"])
        for one in cycles[STEADY:CYCLES]
        for start, _ in one.pauses.values()
    ]
    assert 0 < statistics.median(early) < 0.5, early


def test_every_stage_of_a_cycle_ends_before_the_next_cycle_begins(cycles: list[CycleRecord]) -> None:
    for before, after in pairwise(cycles[STEADY:CYCLES]):
        ended = max(stage["end"] for stage in before.stages.values())
        assert ended <= min(after.stages[name]["start"] for name in ("reduce", "broadcast"))


def test_no_agent_waits_for_an_exchange(run_dir: Path, cycles: list[CycleRecord]) -> None:
    """Between two updates at most the recorded pause, and three median steps for what a machine does to a sleeper."""
    began = next(one for one in read_records(run_dir / "records.jsonl").records if isinstance(one, RunRecord))
    assert began.num_agents == AGENTS
    steps = {int(agent): times for agent, times in json.loads((run_dir / "steps.json").read_text()).items()}
    assert sorted(steps) == list(range(AGENTS))
    for agent, times in steps.items():
        gaps = [b - a for a, b in pairwise(times)]
        pauses = [one.pauses[agent] for one in cycles if agent in one.pauses]
        assert len(pauses) >= CYCLES - 1
        allowed = 3 * statistics.median(gaps)
        for start, end in pairwise(times):
            paused = sum(e - s for s, e in pauses if s < end and start < e)
            assert end - start <= paused + allowed, f"agent {agent} took {end - start:.2f} s, paused {paused:.4f} s of them"
