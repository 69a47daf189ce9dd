"""`mpca bench start`: how long an agent takes to be there, forked from a preloaded parent and started without one.

One executor of this machine holds all agents, whose function waits instead of computing. The first run starts each agent by
itself; the second one also waits until the parent has imported torch; the third one finds it warm. Then agents are killed, one
after the other, and the time counts until the next one's parameters are in a sum. Clocks begin when the driver asks for
processes.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
import psutil

from mpca.cli.bench.load import cpu_idle_share, cpu_ticks
from mpca.cli.bench.run.engine import Case, Opened, open_run
from mpca.cli.bench.run.waiting import wait
from mpca.cli.bench.show import show
from mpca.cli.options import json_option
from mpca.driver.states import AgentState
from mpca.errors import MpcaError
from mpca.spark.run.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["command", "measure"]

_SIZE = 1 << 20
_PATIENCE_S = 120.0
_SHARDS = 3
#: Cycles that a run lasts at most: it ends when the bench has seen enough.
_CYCLES = 100_000


@click.command()
@click.option("--agents", default=4, show_default=True, help="Agents, all in one executor.")
@click.option(
    "--kills",
    default=2,
    show_default=True,
    type=click.IntRange(1, 2),
    help="How many agents are killed. After a third death the driver would leave their executor empty.",
)
@json_option
def command(agents: int, kills: int, as_json: bool) -> None:
    """From the request for an agent to its first update, and from one's death to the next one's contribution."""
    show(measure(agents, kills), as_json)


def measure(agents: int = 4, kills: int = 2) -> dict[str, Any]:
    """The `start` case."""
    ticks = cpu_ticks()
    with (
        tempfile.TemporaryDirectory(prefix="mpca-bench-") as folder,
        session(folder, executors=1, agents_per_executor=agents, executor_memory=1 << 30, name="mpca bench") as spark,
    ):
        fresh, _ = _run(spark, agents, preload=False)
        cold, _ = _run(spark, agents, preload=True)
        warm, more = _run(spark, agents, preload=True, kills=kills)
    return {
        "case": "start",
        "agents": agents,
        "fresh_hello_s": fresh["hello"],
        "fresh_update_s": fresh["update"],
        "cold_hello_s": cold["hello"],
        "cold_update_s": cold["update"],
        "warm_hello_s": warm["hello"],
        "warm_update_s": warm["update"],
        "start_ratio": warm["update"] / fresh["update"],
        **more,
        "size_bytes": _SIZE,
        "cpu_idle_share": cpu_idle_share(ticks, cpu_ticks()),
        "cores": os.cpu_count(),
    }


def _run(spark: SparkSession, agents: int, preload: bool, kills: int = 0) -> tuple[dict[str, float], dict[str, Any]]:
    """Seconds of the slowest agent to its Hello and to its first update; with `kills`, memory and replacements as well."""
    case = Case("start", agents, _SHARDS, 3, _CYCLES, wait, (_SIZE,), per_executor=agents, preload=preload)
    opened = open_run(spark, case, "")
    try:
        asked = _until(opened, lambda: all(one.state is not AgentState.ABSENT for one in opened.table.agents), "requests")
        hello = _until(opened, lambda: all(one.pid for one in opened.table.agents), "Hello") - asked
        update = _until(opened, lambda: all(one.stepped for one in opened.table.agents), "first updates") - asked
        _until(opened, lambda: len(opened.marks.marks) >= 2 * _SHARDS, "cycles")
        more: dict[str, Any] = {}
        if kills:
            more["pss_bytes"] = _pss([one.pid for one in opened.table.agents])
            more["replacement_s"] = statistics.median(_replacement(opened, number % agents) for number in range(kills))
        opened.runner.stop("max_cycles", "the bench has seen enough")
        opened.finish()
        return {"hello": hello, "update": update}, more
    finally:
        opened.cluster.close()


def _until(opened: Opened, condition: Callable[[], bool], what: str) -> float:
    """Run the driver until the condition holds; the moment."""
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        if opened.runner.machine.ended is not None or time.monotonic() > end:
            raise MpcaError(f"the bench waited in vain for {what}: {opened.runner.machine.ended}")
        opened.runner.once()
    return time.monotonic()


def _replacement(opened: Opened, index: int) -> float:
    """Seconds from the death of an agent until a sum has its successor's parameters."""
    agent = opened.table.agents[index]
    successor, seen = agent.incarnation + 1, len(opened.marks.marks)
    os.kill(agent.pid, signal.SIGKILL)
    killed = time.monotonic()

    def contributes() -> bool:
        new = [mark.fields["contributors"] for mark in opened.marks.marks[seen:]]
        return any(one.get(str(index), {}).get("incarnation") == successor for one in new)

    return _until(opened, contributes, f"agent {index} to contribute again") - killed


def _pss(pids: list[int]) -> int:
    """Bytes that agents and what they are forked from take, what they share counted once."""
    processes = {pid: psutil.Process(pid) for pid in pids}
    parents = {one.ppid() for one in processes.values()}
    total = 0
    for one in [*processes.values(), *(psutil.Process(pid) for pid in parents)]:
        with suppress(psutil.NoSuchProcess):
            if one.name() != "java":
                total += one.memory_full_info().pss
    return total
