"""`mpca bench codec`: what a codec (`cluster.codec`) costs in updates to an error, and the smallest that costs none.

The simulator trains both tasks of conf/compare.toml by the default method at b/C = 2.31, without a codec and with each. A ratio
is the updates of one seed with a codec over those of the same seed without, on one schedule of events. The seeds chose nothing:
neither rate nor shards (those from 1000 on did in `mpca compare`), nor the default method (0 to 4 did).

Of a task the middle one of seven targets' medians counts: a single target's tells less than chance does. The control is float32
with a rate that is larger by a millionth: it parts from its pair by chance alone. Nothing here is a time, so a busy machine
changes no figure.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from mpca.cli.bench.show import show
from mpca.cli.options import json_option
from mpca.errors import RunFailed

if TYPE_CHECKING:  # the simulator's tasks need torch
    from mpca.sim.compare.fairness import Curve
    from mpca.sim.compare.unit import Unit

__all__ = ["ALLOWED", "command", "medians", "run", "smallest", "updates_to"]

#: What a codec may cost: updates over those of float32.
ALLOWED = 1.02
_CODECS = ("int4", "int8", "bf16")  # the smallest first
_CONTROL = "control"
_METHOD = {"name": "mpca-nesterov", "shards": 12}
_AGENTS, _RATIO = 8, "ResNet-152"
_FIRST_SEED = 10
_NUDGE = 1e-6  # of the control's rate
#: Targets are what float32 has reached after these shares of its time.
_SHARES = tuple(eighth / 8 for eighth in range(1, 8))


@dataclass(frozen=True, slots=True)
class _Task:
    """As its file has it, but for the rate: the best of the first grid of `mpca compare`, on tuning seeds, at this b/C."""

    rate: float
    updates: int
    tested: int


_TASKS = {"mixture": _Task(0.016, 1200, 2000), "warped-digits": _Task(0.005278, 500, 1000)}
_POINT = 4  # updates between two evaluations: a cycle takes 3.3
_QUICK: dict[str, Any] = {"updates": 80, "points": 20, "tested": 200}


@click.command()
@click.option("--seeds", type=click.IntRange(min=1), default=10, show_default=True, help="Pairs of runs for each codec.")
@click.option("--processes", default=0, help="Worker processes; 0: one for each core.")
@click.option("--quick", is_flag=True, help="Runs of 80 updates, whose figures count for nothing.")
@json_option
def command(seeds: int, processes: int, quick: bool, as_json: bool) -> None:
    """What a codec costs in updates to an error, in the simulator with real gradients; the smallest that costs none."""
    show(run(seeds, processes, quick), as_json)


def run(seeds: int = 10, processes: int = 0, quick: bool = False) -> dict[str, Any]:
    """The `codec` case.

    Args:
        seeds: pairs of runs.
        processes: that simulate; 0: one for each core.
        quick: short runs.

    Raises:
        MpcaError: a simulation failed.
        RunFailed: a process died.
    """
    from mpca.sim.compare.fairness import targets

    units = {(task, codec): _unit(task, codec, seeds, quick) for task in _TASKS for codec in ("none", *_CODECS, _CONTROL)}
    curves = _simulated(units, processes or len(os.sched_getaffinity(0)))
    wanted: dict[str, tuple[float, ...]] = {}
    table: list[dict[str, Any]] = []
    for task in _TASKS:
        without, budget = curves[task, "none"], units[task, "none"].updates
        wanted[task] = targets({0.0: without}, budget, _SHARES)
        for codec in (*_CODECS, _CONTROL):
            coded = curves[task, codec]
            found = medians(coded, without, wanted[task])
            table.append(
                {
                    "task": task,
                    "codec": codec,
                    "worst": max(found),
                    "middle": median(found),
                    "medians": found,
                    "missed": sum(one.reached(target) is None for one in coded for target in wanted[task]),
                    "last_errors": [one.errors[-1] for one in coded],
                }
            )
    ratios = {codec: max(row["middle"] for row in table if row["codec"] == codec) for codec in (*_CODECS, _CONTROL)}
    return {
        "case": "codec",
        "method": _METHOD["name"],
        "shards": _METHOD["shards"],
        "agents": _AGENTS,
        "ratio": _RATIO,
        "seeds": seeds,
        "counts": not quick,
        **{f"{codec}_updates_ratio": one for codec, one in ratios.items()},
        "smallest": smallest(ratios),
        "targets": {task: list(some) for task, some in wanted.items()},
        "missed_without": {
            task: sum(one.reached(target) is None for one in curves[task, "none"] for target in some)
            for task, some in wanted.items()
        },
        "table": table,
    }


def updates_to(curve: Curve, target: float) -> float:
    """Updates of an agent until an error is reached, between two evaluations along a line.

    A run that does not get there counts as if it did at its end.

    Args:
        curve: of one run.
        target: the error.

    Example:
        >>> from mpca.sim.compare.fairness import Curve
        >>> updates_to(Curve((4, 8), (4, 8), (1, 2), (0.5, 0.3)), 0.35)
        7.0
    """
    index = curve.reached(target)
    if not index:
        return curve.updates[-1 if index is None else 0]
    (before, after), (high, low) = curve.updates[index - 1 : index + 1], curve.errors[index - 1 : index + 1]
    return after - (after - before) * (target - low) / (high - low)


def medians(coded: Sequence[Curve], without: Sequence[Curve], targets: Sequence[float]) -> list[float]:
    """For each target the median over pairs of the updates with a codec over those without.

    Args:
        coded: runs with the codec.
        without: runs of the same seeds, in the same order.
        targets: errors.
    """
    pairs = list(zip(coded, without, strict=True))
    return [median(updates_to(one, target) / updates_to(other, target) for one, other in pairs) for target in targets]


def smallest(ratios: Mapping[str, float]) -> str:
    """The smallest codec that costs no more than is allowed; "none" if there is none.

    Args:
        ratios: by codec, of the task where it costs more.

    Example:
        >>> smallest({"bf16": 1.0, "int8": 1.02, "int4": 1.05})
        'int8'
    """
    return next((codec for codec in _CODECS if ratios[codec] <= ALLOWED), "none")


def _unit(name: str, codec: str, seeds: int, quick: bool) -> Unit:
    from mpca import methods
    from mpca.sim.compare.settings import Shared
    from mpca.sim.compare.unit import Unit

    shared, task = Shared(task=name), _TASKS[name]
    control = codec == _CONTROL
    unit = Unit(
        method=methods.from_dict(_METHOD).to_dict(),
        agents=_AGENTS,
        ratio=_RATIO,
        step_s=shared.step,
        bandwidth=shared.bandwidth,
        transport=shared.transport,
        spread=shared.spread,
        contested=0,
        task=name,
        optimizer=shared.optimizer,
        batch=shared.batch,
        rates=(task.rate * (1 + _NUDGE) if control else task.rate,),
        seeds=tuple(range(_FIRST_SEED, _FIRST_SEED + seeds)),
        updates=task.updates,
        points=task.updates // _POINT,
        tested=task.tested,
        schedule=_FIRST_SEED,
        codec="none" if control else codec,
    )
    return replace(unit, **_QUICK) if quick else unit


def _simulated(units: Mapping[tuple[str, str], Unit], processes: int) -> dict[tuple[str, str], list[Curve]]:
    """The curves of each unit: the runs of its seeds."""
    from mpca.data.child import Died, Done, work

    names = {unit.key: name for name, unit in units.items()}
    found = {}
    click.echo(f"{len(units)} simulations in {processes} processes", err=True)
    with closing(work("mpca.sim.compare.worker", deque(units.values()), processes)) as events:
        for event in events:
            task, codec = names[event.task.key]
            if isinstance(event, Died):
                raise RunFailed(f"a process that simulated {task} with codec {codec} has died: {event.reason}")
            assert isinstance(event, Done)
            found[task, codec] = event.value
            click.echo(f"{len(found)} of {len(units)}: {task}, {codec}", err=True)
    return found
