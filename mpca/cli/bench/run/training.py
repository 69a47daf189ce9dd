"""A train function in which one agent computes on a core of its own and the others wait with the same model."""

from __future__ import annotations

import os
import time

import mpca
from mpca.cli.bench.run.waiting import STEP_S

__all__ = ["TRAINING_CORE", "train_one"]

#: Everything else of a bench keeps off this core. On a GPU node, too, the exchange does not take the trainer's core.
TRAINING_CORE = 0


def train_one(shape_name: str) -> list[tuple[float, float]]:
    """Train (agent 0) or wait (the others) until the run ends.

    Returns:
        Wall clock and CPU seconds so far at the end of every step.
    """
    from mpca.models.bench import SHAPES
    from mpca.models.training import create_optimizer, train_step

    shape = SHAPES[shape_name]
    model = shape.create()
    optimizer = create_optimizer(model, "adam", lr=1e-5)
    images, labels = shape.inputs()
    mpca.attach(model, optimizer)
    steps = []
    if mpca.rank() == 0 and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {TRAINING_CORE})
    while not mpca.stopping():
        if mpca.rank() == 0:
            train_step(model, optimizer, images, labels)
        else:
            time.sleep(STEP_S)
            optimizer.step()
        steps.append((time.time(), time.process_time()))
    return steps
