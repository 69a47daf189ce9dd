"""Train functions of `bench pause`: one agent computes on a core of its own while others wait, or is alone on a device."""

from __future__ import annotations

import os
import time

import mpca
from mpca.cli.bench.run.waiting import STEP_S

__all__ = ["TRAINING_CORE", "train_alone", "train_one"]

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


def train_alone(net: str, batch: int, half: bool) -> list[tuple[float, float]]:
    """Train a model of the table, or a shape of the benches, on this agent's device until the run ends; as `train_one`."""
    from mpca.models.bench import shape_of
    from mpca.models.training import create_optimizer, train_step

    device = mpca.device()
    shape = shape_of(net, batch)
    model = shape.create().to(device)
    optimizer = create_optimizer(model, "adam", lr=1e-5)
    images, labels = (one.to(device) for one in shape.inputs())
    mpca.attach(model, optimizer)
    steps = []
    while not mpca.stopping():
        train_step(model, optimizer, images, labels, half)
        steps.append((time.time(), time.process_time()))
    return steps
