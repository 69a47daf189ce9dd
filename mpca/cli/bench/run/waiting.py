"""A train function that waits instead of computing: a real agent with a model of a wanted size and no gradients."""

from __future__ import annotations

import time

import mpca

__all__ = ["STEP_S", "wait"]

#: So short that no snapshot waits for it, and so long that eight agents leave the CPU free.
STEP_S = 0.02


def wait(size_bytes: int, step_s: float = STEP_S) -> list[float]:
    """Exchange `size_bytes` of parameters until the run ends.

    Returns:
        The wall clock of every step.
    """
    from mpca.models.bench import Weights
    from mpca.models.training import create_optimizer

    model = Weights(size_bytes)
    optimizer = create_optimizer(model, "sgd", lr=0.0)
    mpca.attach(model, optimizer)
    steps = []
    while not mpca.stopping():
        time.sleep(step_s)
        optimizer.step()
        steps.append(time.time())
    return steps
