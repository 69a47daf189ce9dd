"""`mpca bench backup`: seconds of a backup to HDFS through the driver's JVM, and what it costs the cycles meanwhile.

Two agents on executors of this machine exchange a model of the wanted size, cycle after cycle. They take half a second for a
step, as nets of that size do, so that the agents and not this machine determine the length of a cycle. Within one run, the
driver in turns writes a backup and writes none. `cycle_rate_ratio` is cycles a second during a backup (with the copy of the
joint model before it) over cycles a second without.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from mpca.cli.bench.load import cpu_idle_share, cpu_ticks, invalid_reason
from mpca.cli.bench.run.waiting import wait
from mpca.cli.bench.show import show
from mpca.cli.options import SIZE, json_option
from mpca.errors import MpcaError

if TYPE_CHECKING:
    from mpca.cli.bench.run.engine import Opened
    from mpca.driver.backups import BackupWriter

__all__ = ["command", "cycles_a_second", "measure"]

AGENTS, SHARDS = 2, 3
STEP_S = 0.5
#: Cycles before the first window: by then every shard was exchanged, so the trajectory has its full size.
FIRST_CYCLES = 2 * SHARDS
LEAST_CYCLES = 6  # of a window
_100_MIB = 100 << 20

Window = tuple[float, float]


@click.command()
@click.option("--to", default="hdfs:///tmp", show_default=True, help="The benchmark writes a folder here, and removes it.")
@click.option(
    "--size",
    "size_bytes",
    type=SIZE,
    default="100MiB",
    show_default=True,
    help="Size of the model; a backup has three times as much.",
)
@click.option("--turns", default=4, show_default=True, help="How many windows with a backup, and as many without.")
@json_option
def command(to: str, size_bytes: int, turns: int, as_json: bool) -> None:
    """Backups to HDFS through the JVM: seconds, and the cycle rate meanwhile."""
    show(measure(to, size_bytes, turns), as_json)


def measure(to: str = "hdfs:///tmp", size_bytes: int = _100_MIB, turns: int = 4) -> dict[str, Any]:
    """The `backup` case.

    Raises:
        ConfigError: no such location.
        EnvironmentRefused: `to` names no host, and no cluster is configured.
        MpcaError: a backup was not written, or an agent was lost.
    """
    from mpca.cli.bench.run.engine import Case, open_run
    from mpca.cli.bench.run.place import cluster_jvms
    from mpca.spark.jvm.hadoop import configuration_folder
    from mpca.spark.run.session import session
    from mpca.storage import Location

    if to.startswith("hdfs:///"):
        configuration_folder()  # refused here, and not by Hadoop after executors have started
    location = Location.parse(to) / f"mpca-bench-{os.getpid()}"
    # Heaps hold the executors' chunks and the driver's pieces; a backup passes through a segment outside the heap.
    heap = (1 << 30) + 4 * size_bytes
    with (
        tempfile.TemporaryDirectory(prefix="mpca-bench-") as folder,
        session(
            folder, executors=AGENTS, executor_memory=heap, driver_memory=heap, name="mpca bench", conf=cluster_jvms(folder)
        ) as spark,
        ExitStack() as stack,
    ):
        writer = _writer(location, spark, stack)
        case = Case("backup", AGENTS, SHARDS, 3, 1 << 30, wait, (size_bytes, STEP_S), deadline_s=120.0)
        opened = open_run(spark, case, "lo")
        stack.callback(opened.cluster.close)
        click.echo(f"{turns} windows with and {turns} without a backup", err=True)
        start = cpu_ticks()
        busy, free, written = _turns(opened, writer, turns)
        idle = cpu_idle_share(start, cpu_ticks())
        opened.runner.stop("reached", "measured")
        while opened.runner.machine.ended is None:
            opened.runner.once()
        writer.close(0.0)
    ends = [mark.at for mark in opened.marks.marks]
    rates = {name: cycles_a_second(ends, windows) for name, windows in (("during", busy), ("without", free))}
    per_100 = [one["seconds"] / (one["bytes"] / _100_MIB) for one in written]
    reason = invalid_reason(idle)
    return {
        "case": "backup",
        "valid": not reason,
        "reason": reason,
        "model_bytes": size_bytes,
        "backup_bytes": written[-1]["bytes"],
        "backup_s": statistics.median(one["seconds"] for one in written),
        "backup_s_per_100mib": statistics.median(per_100),
        "backup_mib_s": 100 / statistics.median(per_100),
        "cycle_rate_ratio": rates["during"] / rates["without"],
        "cycle_rate": rates,
        "each_s_per_100mib": per_100,
        "cpu_idle_share": idle,
        "cores": os.cpu_count(),
    }


def cycles_a_second(ends: Sequence[float], windows: Sequence[Window]) -> float:
    """Cycles a second over some windows, from whole cycles alone.

    A window is extended back to the end of the cycle before it, so that a delay of its first cycle counts. It ends with the
    last cycle that ended in it.

    Args:
        ends: when each cycle of the run ended, in seconds, ascending.
        windows: begin and end of each, in seconds.

    Example:
        >>> cycles_a_second([1.0, 2.0, 4.0, 6.0, 8.0], [(2.5, 6.5)])
        0.5
    """
    cycles, seconds = 0, 0.0
    for begin, end in windows:
        first, last = bisect_right(ends, begin) - 1, bisect_right(ends, end) - 1
        if first < 0 or last <= first:
            raise MpcaError(f"no cycle lies in a window: seconds={end - begin:.2f}, cycles of the run={len(ends)}")
        cycles += last - first
        seconds += ends[last] - ends[first]
    return cycles / seconds


def _writer(location: Any, spark: Any, stack: ExitStack) -> BackupWriter:
    """The production writer, over a folder that `stack` removes."""
    from mpca.api.stores import open_store
    from mpca.driver.backups import BackupWriter
    from mpca.storage import Backups

    store = open_store(location, stack, spark)
    stack.callback(store.delete, "")
    return BackupWriter(Backups(store, "backups", keep=1), "bench", 1, 0, {})


def _turns(opened: Opened, writer: BackupWriter, turns: int) -> tuple[list[Window], list[Window], list[dict[str, Any]]]:
    """Windows with a backup, windows without, and what was written."""
    runner, marks = opened.runner, opened.marks.marks
    busy: list[Window] = []
    free: list[Window] = []
    written: list[dict[str, Any]] = []

    def once() -> None:
        runner.once()
        end = runner.machine.ended
        if end is not None:
            raise MpcaError(f"bench run failed: {end.reason}")

    def cycles(count: int) -> Window:
        begin, beyond = time.monotonic(), len(marks) + count
        while len(marks) < beyond:
            once()
        return begin, time.monotonic()

    def back_up() -> Window:
        """Write backups one by one, each of its own cycle, for `LEAST_CYCLES` cycles and until the last backup is whole."""
        begin, beyond, newest = time.monotonic(), len(marks) + LEAST_CYCLES, -1
        while len(marks) < beyond or writer.busy:
            if not writer.busy and runner.machine.cycle > newest:
                newest = runner.machine.cycle
                assert runner.joint is not None
                writer.submit(writer.state(runner.joint, newest, runner.progress(), {}))
            once()
            written.extend(writer.poll())
        return begin, time.monotonic()

    cycles(FIRST_CYCLES)
    for _ in range(turns):
        busy.append(back_up())
        cycles(1)  # of neither sort
        free.append(cycles(LEAST_CYCLES))
    written += writer.poll()
    refused = [one for one in written if not one["ok"]]
    if refused:
        raise MpcaError(f"a backup was not written: {refused[0]['reason']}")
    return busy, free, written
