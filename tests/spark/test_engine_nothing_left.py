"""Five hundred cycles of a small model leave no more behind than a hundred did, in the driver and in the agents too."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from tests.spark.jobs import quadratic
from tests.spark.support import java_pids
from tests.spark.test_nothing_left import look

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

EARLY, LATE = 100, 500
# A JVM that is new at the first look still compiles: over 1,700 cycles its heap after a collection stayed at 39 MiB and its
# direct memory at 16 MiB, while it grew by 10 to 20 MiB up to about cycle 300 and hardly any more. Not for Python.
COMPILED_KB = 20 << 10


def test_five_hundred_cycles_of_a_run(engine, spark, work_dir: Path) -> None:
    looks: list[dict[str, dict[str, int]]] = []
    jvms: dict[str, dict[str, int]] = {}  # by executor, and "driver"
    maps: list[str] = []

    def story(run):
        for cycle in (EARLY, LATE):
            yield lambda cycle=cycle: run.reducing(cycle)
            jvms.update(look(run, spark, work_dir))
            agents = {f"agent {agent}": held(run.pid(agent)) for agent in range(3)}
            looks.append({**jvms, **agents, "driver's Python": held(os.getpid())})
        maps.extend(Path(f"/proc/{pid}/maps").read_text() for pid in java_pids(work_dir).values())

    settings = (f"objectives.max_cycles={LATE + 5}", "backup.interval=0s")
    told = engine(quadratic, elements=7_500, pause_s=0.002, tape=False, story=story, remember=False, sets=settings)
    assert told.ended.exit_code == 0, told.ended.reason
    assert all(set(one.contributors) == {0, 1, 2} for one in told.cycles)
    early, late = looks
    print(early, late, sep="\n")
    for place, then in early.items():
        now = late[place]
        assert now.get("blocks") == then.get("blocks"), place
        assert now.get("broadcasts", 0) <= then.get("broadcasts", 0) + 10, place  # of the newest jobs
        assert now["threads"] == then["threads"], place
        assert now["descriptors"] <= then["descriptors"] + 5, place
        compiled = COMPILED_KB if place in jvms else 0
        assert now["resident"] <= 1.05 * then["resident"] + compiled, place
    assert shared(early) == shared(late)
    assert maps
    assert not any("mpca-agent" in one for one in maps), "agents' slots: YARN would count them twice (sizing.py)"


def held(pid: int) -> dict[str, int]:
    process = psutil.Process(pid)
    return {
        "threads": process.num_threads(),
        "descriptors": process.num_fds(),
        "resident": process.memory_info().rss >> 10,
        "shared": len(os.listdir("/dev/shm")),
    }


def shared(places: dict[str, dict[str, int]]) -> list[int]:
    return [one["shared"] for one in places.values() if "shared" in one]
