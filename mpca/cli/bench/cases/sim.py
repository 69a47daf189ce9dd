"""`mpca bench sim`: how many fault schedules the simulator runs in a minute. The invariants of each are checked."""

from __future__ import annotations

import logging
import os
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import click

from mpca.cli.bench.show import show
from mpca.cli.options import json_option

__all__ = ["command", "run"]

_AT_ONCE = 20  # schedules that a process takes at a time


@click.command()
@click.option("--schedules", default=1000, show_default=True, help="How many schedules; their seeds begin at 0.")
@click.option("--processes", default=0, help="Worker processes; 0: one for each core.")
@json_option
def command(schedules: int, processes: int, as_json: bool) -> None:
    """Simulated fault schedules per minute: 8 agents, 3 shards, 30 cycles."""
    show(run(schedules, processes), as_json)


def run(schedules: int = 1000, processes: int = 0) -> dict[str, Any]:
    """Simulate `schedules` seeds of the standard scenario.

    Raises:
        Violation: an invariant does not hold; its message has the seed and the story.
    """
    processes = processes or len(os.sched_getaffinity(0))
    batches = [range(first, min(first + _AT_ONCE, schedules)) for first in range(0, schedules, _AT_ONCE)]
    with ProcessPoolExecutor(processes) as pool:
        list(pool.map(_simulate, [range(0, 2)] * processes))  # the processes import everything before the clock starts
        start = time.perf_counter()
        done = list(pool.map(_simulate, batches))
        elapsed = time.perf_counter() - start
    events, cycles, faults, cpu_s = (sum(one[i] for one in done) for i in range(4))
    return {
        "schedules_per_minute": round(schedules / elapsed * 60),
        "events_per_schedule": round(events / schedules, 1),
        "cycles_per_schedule": round(cycles / schedules, 2),
        "faults_per_schedule": round(faults / schedules, 2),
        "cpu_ms_per_schedule": round(1000 * cpu_s / schedules, 1),
        "processes": processes,
    }


def _simulate(seeds: range) -> tuple[int, int, int, float]:
    """Events, cycles and faults that happened, and CPU seconds."""
    from mpca.sim.run import simulate, standard_scenario

    logging.getLogger("mpca").setLevel(logging.ERROR)  # each fault logs a warning
    start = time.process_time()
    events = cycles = faults = 0
    for seed in seeds:
        outcome = simulate(standard_scenario(seed), seed)
        events += outcome.events
        cycles += outcome.cycles
        faults += len(outcome.faults)
    return events, cycles, faults, time.process_time() - start
