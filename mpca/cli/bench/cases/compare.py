"""`mpca bench compare`: updates a second and core of the simulator's stacked trainers, alone and within a simulated run.

CPU seconds of this process are counted, so that other processes on the machine matter little; it has one thread.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import click

from mpca.cli.bench.show import show
from mpca.cli.options import json_option

__all__ = ["command", "run"]

_ROUNDS = 5
_SEEDS = (0, 1, 2, 3, 4)


@click.command()
@click.option("--runs", default=25, show_default=True, help="Runs in a stack, in fives: five seeds a learning rate.")
@click.option("--seconds", default=20.0, show_default=True, help="CPU seconds of the measurement.")
@json_option
def command(runs: int, seconds: float, as_json: bool) -> None:
    """Updates a second and core of stacked runs: an MLP of 7 k parameters, a convnet of 10 k, and mpca simulated."""
    if runs < len(_SEEDS):
        raise click.BadParameter(f"must be {len(_SEEDS)} or more: {runs}", param_hint="--runs")
    show(run(runs // len(_SEEDS), seconds), as_json)


def run(rates: int = 5, seconds: float = 20.0) -> dict[str, Any]:
    """Measure stacks of `rates` learning rates with five seeds each. The fastest of five rounds counts."""
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))  # before numpy is imported
    from mpca.sim.costs import Costs
    from mpca.sim.run import Scenario
    from mpca.sim.science.lesson import learn

    logging.getLogger("mpca").setLevel(logging.ERROR)
    task = {"rates": [0.001 * (1 + rate) for rate in range(rates)], "seeds": list(_SEEDS)}
    mlp, convnet = (_updates_per_s(name, task, seconds / 3) for name in ("mixture", "warped-digits"))
    # Eight agents whose exchange of the model takes as long as 25 updates, for as many updates as take a third of the time.
    updates = max(25.0, mlp * seconds / 3 / len(_SEEDS) / rates / 8)
    costs = Costs(step_s=0.02, rate=1e6, element_bytes=36.0)
    scenario = Scenario(trainer="mixture", task=task, costs=costs, cycles=10**9, max_time_s=0.02 * updates)
    start = time.process_time()
    _, points = learn(scenario, seed=0)
    elapsed = time.process_time() - start
    return {
        "mlp_updates_per_s": round(mlp),
        "convnet_updates_per_s": round(convnet),
        "simulated_updates_per_s": round(points[-1].updates * 8 * len(_SEEDS) * rates / elapsed),
        "runs": len(_SEEDS) * rates,
        "cores": 1,
    }


def _updates_per_s(name: str, task: dict[str, Any], seconds: float) -> float:
    """Updates of all runs in a second of the CPU."""
    from dataclasses import replace

    from mpca.methods import How
    from mpca.sim.science.lesson import TASKS, DataLesson

    lesson = DataLesson(replace(TASKS[name], **task), every_s=1.0)
    bounds, _ = lesson.plan(1)
    trainer = lesson.trainer(bounds, How.PULL, agent=0, incarnation=0)
    trainer.advance(10, ())
    best, at_once = 0.0, 10
    for _ in range(_ROUNDS):
        start, count = time.process_time(), 0
        while time.process_time() - start < seconds / _ROUNDS:
            trainer.advance(at_once, ())
            count += at_once
        best = max(best, count / (time.process_time() - start))
    return best * len(lesson.task.runs)
