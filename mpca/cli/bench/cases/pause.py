"""`mpca bench pause`: what exchanges cost an agent that trains.

Three agents run on executors of this machine. Agent 0 trains on one thread and a core of its own, the others wait with the same
model, and everything else keeps off that core. Within one run, the driver in turns exchanges for a while, cycle after cycle,
and pauses for a while. So steps with and without exchanges come from the same process and the same minutes. `steps_ratio`
counts wall clock; `cpu_steps_ratio` counts agent 0's CPU seconds, without the time slices of other processes. Loopback moves
bytes far faster than any network, so there are more exchanges for each step than on a cluster.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click
import psutil

from mpca.agent.returned import unpack
from mpca.cli.bench.load import cpu_idle_share, cpu_ticks
from mpca.cli.bench.run.place import cluster_jvms
from mpca.cli.bench.run.training import TRAINING_CORE, train_one
from mpca.cli.bench.run.windows import LEAST_STEPS, LEAST_WINDOW_S, Window, step_times
from mpca.cli.bench.show import show
from mpca.cli.options import json_option
from mpca.driver.events import AgentProgress
from mpca.errors import MpcaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mpca.cli.bench.run.engine import Opened

__all__ = ["SIZES", "command", "measure"]

AGENTS = 3
#: Sizes of the issue, and the nets that have them.
SIZES = {"1MiB": "residual-1M", "7MiB": "residual-7M", "100MiB": "residual-100M"}
DEADLINE_S = 120.0
#: With a smaller share of its core, agent 0's steps measure the machine's other work.
LEAST_CORE_SHARE = 0.95
SETTLE_S = 1.0  # a job in flight ends within that time once the driver pauses
#: Of 30 KiB, before anything is measured: JVMs that still compile use as much CPU for a third of the cycles.
WARM_CYCLES = 1000


@click.command()
@click.option("--size", "sizes", multiple=True, type=click.Choice(list(SIZES)), help="Size of the net; all if not given.")
@click.option("--turns", default=4, show_default=True, help="How many windows with exchanges, and as many without.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Agents on this device, without Spark or Java.")
@click.option("--agents", type=click.IntRange(min=1), help="With --device: how many share it; default: one.")
@click.option("--model", "models", multiple=True, help="With --device: a model of mpca.models; default: the paper's three.")
@click.option("--batch", type=click.IntRange(min=1), help="With --model: images of a batch; default: the paper's.")
@click.option("--bf16", is_flag=True, help="With --device: compute in bfloat16.")
@json_option
def command(
    sizes: tuple[str, ...],
    turns: int,
    device: str | None,
    agents: int | None,
    models: tuple[str, ...],
    batch: int | None,
    bf16: bool,
    as_json: bool,
) -> None:
    """What exchanges cost an agent that trains: pauses, and steps per second."""
    if device is None:
        if agents or models or batch or bf16:
            raise click.UsageError("--agents, --model, --batch and --bf16 are for --device")
        show(measure(sizes, turns), as_json)
        return
    if sizes:
        raise click.UsageError("--size is for agents on Spark's executors; with --device name a model: --model resnet34")
    from mpca.cli.bench.run.lone_pause import measure_alone
    from mpca.models.bench import of_paper

    show(measure_alone(device, of_paper(models, batch), bf16, turns, agents or 1), as_json)


def measure(sizes: tuple[str, ...] = (), turns: int = 4, warm_cycles: int = WARM_CYCLES) -> dict[str, Any]:
    """The `pause` case: for each size, and the worst of them."""
    from mpca.spark.run.session import session

    with (
        _off_the_training_core(),
        tempfile.TemporaryDirectory(prefix="mpca-bench-") as folder,
        session(folder, executors=AGENTS, executor_memory=1 << 30, name="mpca bench", conf=cluster_jvms(folder)) as spark,
    ):
        rows = []
        _warm(spark, warm_cycles)
        for size in sizes or SIZES:
            click.echo(f"a net of {size}: {turns} windows with and {turns} without exchanges", err=True)
            rows.append(_measure(spark, size, turns))
    reasons = [row["reason"] for row in rows if row["reason"]]
    return {
        "case": "pause",
        "agents": AGENTS,
        "valid": not reasons,
        "reason": "; ".join(reasons),
        "pause_share": max(row["pause_share"] for row in rows),
        "steps_ratio": min(row["steps_ratio"] for row in rows),
        "jvm_cpu_cores": max(row["jvm_cpu_cores"] for row in rows),
        "sizes": rows,
        "cores": os.cpu_count(),
    }


@dataclass
class _Watch:
    """Steps the run, and keeps what agent 0 reported last."""

    opened: Opened
    progress: AgentProgress | None = None
    windows: list[Window] = field(default_factory=list)

    def turn(self) -> None:
        runner = self.opened.runner
        events = runner.cluster.poll(0.02)
        for event in events:
            if isinstance(event, AgentProgress) and event.agent == 0:
                self.progress = event
        runner.step(events)
        runner.beside()
        if runner.machine.ended is not None and runner.machine.ended.status == "failed":
            raise MpcaError(f"bench run failed: {runner.machine.ended.reason}")

    def until_steps(self, steps: int) -> float:
        """Exchange until agent 0 has made so many steps.

        Returns:
            Seconds a step.
        """
        while self.progress is None or self.progress.steps < steps:
            self.turn()
        return self.progress.train_s / self.progress.steps

    def exchange(self, seconds: float) -> None:
        before, cycles, jvm = self._pause_s(), len(self.opened.marks.marks), _jvm_seconds()
        window = Window(True, time.time())
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.turn()
        window.end = time.time()
        window.pause_s = self._pause_s() - before
        window.jvm_s = _jvm_seconds() - jvm
        window.cycles = len(self.opened.marks.marks) - cycles
        self.windows.append(window)

    def let_go(self, seconds: float) -> None:
        time.sleep(SETTLE_S)
        window = Window(False, time.time())
        time.sleep(seconds)
        window.end = time.time()
        self.windows.append(window)

    def _pause_s(self) -> float:
        return 0.0 if self.progress is None else self.progress.pause_s


def _warm(spark: SparkSession, cycles: int) -> None:
    """Exchange among agents that wait, until the JVMs have compiled what a run repeats."""
    from mpca.cli.bench.run.engine import Case, open_run
    from mpca.cli.bench.run.exchange_driver import SMALL_BYTES
    from mpca.cli.bench.run.waiting import wait

    click.echo(f"{cycles} cycles for the JVMs to compile", err=True)
    opened = open_run(spark, Case("warm", AGENTS, 3, 3, cycles, wait, (SMALL_BYTES,), deadline_s=DEADLINE_S), "lo")
    try:
        opened.finish()
    finally:
        opened.cluster.close()


def _measure(spark: SparkSession, size: str, turns: int) -> dict[str, Any]:
    from mpca.cli.bench.run.engine import Case, open_run

    case = Case(f"pause-{size}", AGENTS, 3, 3, 1 << 30, train_one, (SIZES[size],), deadline_s=DEADLINE_S, pull=True)
    opened = open_run(spark, case, "lo")
    try:
        watch = _Watch(opened)
        step_s = watch.until_steps(LEAST_STEPS)
        seconds = max(LEAST_WINDOW_S, LEAST_STEPS * step_s)
        start = cpu_ticks()
        for _ in range(turns):
            watch.exchange(seconds)
            watch.let_go(seconds)
        idle = cpu_idle_share(start, cpu_ticks())
        opened.runner.stop("reached", "measured")
        while opened.runner.machine.ended is None:
            watch.turn()
    finally:
        opened.cluster.close()
    steps = unpack(opened.runner.returns[0])
    with_s, with_cpu = step_times(steps, watch.windows, True)
    without_s, without_cpu = step_times(steps, watch.windows, False)
    core_share = sum(without_cpu) / sum(without_s)
    enough = core_share >= LEAST_CORE_SHARE
    on = [one for one in watch.windows if one.exchanging]
    exchanged_s, paused_s = sum(one.end - one.start for one in on), sum(one.pause_s for one in on)
    return {
        "size": size,
        "pause_share": paused_s / (exchanged_s - paused_s),
        "steps_ratio": statistics.fmean(without_s) / statistics.fmean(with_s),
        "cpu_steps_ratio": statistics.fmean(without_cpu) / statistics.fmean(with_cpu),
        "core_share": core_share,
        "jvm_cpu_cores": sum(one.jvm_s for one in on) / exchanged_s,
        "step_s": statistics.fmean(without_s),
        "steps": [len(with_s), len(without_s)],
        "cycles": sum(one.cycles for one in on),
        "pause_per_exchange_s": paused_s / max(1, sum(one.cycles for one in on)),
        "cpu_idle_share": idle,
        "reason": ""
        if enough
        else f"{size}: agent 0 had {core_share:.2f} of its core between exchanges: others computed there",
    }


@contextmanager
def _off_the_training_core() -> Iterator[None]:
    """Keep this process, and all that it starts in this block, off agent 0's core."""
    before = os.sched_getaffinity(0)
    if len(before) > 1:
        os.sched_setaffinity(0, before - {TRAINING_CORE})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _jvm_seconds() -> float:
    """CPU seconds so far of the JVMs below this process."""
    total = 0.0
    for child in psutil.Process().children(recursive=True):
        try:
            if child.name() == "java":
                times = child.cpu_times()
                total += times.user + times.system
        except psutil.NoSuchProcess:
            pass
    return total
