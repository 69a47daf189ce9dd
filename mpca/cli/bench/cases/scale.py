"""`mpca bench scale`: what many executors cost the driver, against executors that answer without computing.

The driver is production's, in Python and in the JVM, with Spark's scheduler and one real task for each executor and order. The
executors are one JVM beside it (``org.mpca.rdd.FakeExecutors``): they say what ours would, over Spark's own RPC. So messages,
bytes and CPU seconds of the driver count; seconds of a cycle do not, since both sides share this machine. Heartbeats are left
out, and so is what executors send each other.

Before them come a few real executors, whose agents have no torch. They show what those that answer leave out: what executors
and agents use, how many descriptors are open, and how the driver's CPU compares with that for as many that answer.

There is no figure of a cycle without a Spark job, since nothing else carries an order. `cpu_beside_jobs_s` is the driver's CPU
less that of threads that work for Spark's jobs alone: what would stay if orders came by something that costs nothing.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from mpca.cli.bench.load import cpu_idle_share, cpu_ticks
from mpca.cli.bench.net.node_process import NodeProcess
from mpca.cli.bench.show import show
from mpca.cli.options import SIZE, json_option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["command", "figures", "measure"]

_DRIVER = "mpca.cli.bench.run.scale_driver"
#: Totals that become differences a cycle.
_ANSWERING = ("tasks", "messages_to_driver", "messages_from_driver", "task_bytes", "closure_bytes")
_REAL = ("executors_cpu_s", "agents_cpu_s")
_LAST = ("driver_descriptors", "executor_descriptors")


@click.command()
@click.option(
    "--agents", "agents", multiple=True, type=int, default=(64, 256, 1024), show_default=True, help="K, each in turn."
)
@click.option("--size", "size_bytes", type=SIZE, default="30KiB", show_default=True, help="Bytes of the whole model.")
@click.option("--cycles", type=click.IntRange(min=4), default=12, show_default=True, help="Cycles; the later half counts.")
@click.option("--real", type=click.IntRange(min=0), default=16, show_default=True, help="K of real executors; 0: none.")
@json_option
def command(agents: tuple[int, ...], size_bytes: int, cycles: int, real: int, as_json: bool) -> None:
    """What many executors cost the driver a cycle, against executors that answer without computing."""
    show(measure(agents, size_bytes, cycles, real), as_json)


def measure(
    agents: Sequence[int] = (64, 256, 1024), size_bytes: int = 30 << 10, cycles: int = 12, real: int = 16
) -> dict[str, Any]:
    """The `scale` case.

    Raises:
        MpcaError: a run failed.
    """
    start = cpu_ticks()
    beside = _measured(real, size_bytes, cycles, real=True) if real else {}
    counts = dict.fromkeys((*([real] if real else ()), *agents))
    answering = {count: _measured(count, size_bytes, cycles) for count in counts}
    if real:
        beside["cpu_over_answering"] = beside["cpu_s"] / answering[real]["cpu_s"]
    rows = [answering[count] for count in agents]
    return {
        "case": "scale",
        "size_bytes": size_bytes,
        "cycles": cycles,
        "scale_cpu_s": rows[-1]["cpu_s"],
        **({"real": beside} if real else {}),
        "sizes": rows,
        "cpu_idle_share": cpu_idle_share(start, cpu_ticks()),
        "cores": os.cpu_count(),
    }


def _measured(agents: int, size_bytes: int, cycles: int, *, real: bool = False) -> dict[str, Any]:
    from mpca.cli.bench.run.scale_driver import Spec

    click.echo(f"{agents} executors that {'are real' if real else 'answer'}", err=True)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mpca-bench-"))
        spec = Spec(work_dir=folder, agents=agents, size_bytes=size_bytes, cycles=cycles, real=real)
        said = NodeProcess(stack, [], _DRIVER, spec).hear()
        return {"agents": agents, **figures(said["marks"], said["start"])}


def figures(marks: Sequence[Mapping[str, float]], start: Mapping[str, float]) -> dict[str, float]:
    """Figures from the marks of a run's cycles: differences over its later half, for one cycle.

    Args:
        marks: totals when the record of each cycle was written.
        start: seconds, and CPU seconds of the driver, from the session until the first of them.
    """
    first, last = marks[len(marks) // 2 - 1], marks[-1]
    cycles = last["cycle"] - first["cycle"]

    def each(name: str) -> float:
        return (last[name] - first[name]) / cycles

    return {
        "cpu_s": each("python_cpu_s") + each("jvm_cpu_s"),
        "python_cpu_s": each("python_cpu_s"),
        "jvm_cpu_s": each("jvm_cpu_s"),
        "cpu_beside_jobs_s": each("python_cpu_s") + each("jvm_cpu_s") - each("job_cpu_s"),
        **{name: each(name) for name in (*_ANSWERING, *_REAL) if name in last},
        **{name: last[name] for name in _LAST if name in last},
        "cycle_s": each("at"),
        "start_s": start["s"],
        "start_cpu_s": start["cpu_s"],
    }
