"""The simulator's trainers take arrivals in as torch's does: one list of steps, played on both and in fractions."""

from __future__ import annotations

from fractions import Fraction as F

import numpy as np
import pytest
import torch
from torch import nn

from mpca.agent.layout import read_layout
from mpca.agent.torch_trainer import TorchTrainer
from mpca.methods import How
from mpca.sim.trainers import LinearTrainer

BOUNDS, SIZE = [0, 4, 8], 8
GRADIENT = LinearTrainer.gradient_of(SIZE, agent=1)

#: Shards, numbers that arrive, and how many updates of lr 1/4 are made, in the order in which it happens.
STORIES = {
    "an arrival before any snapshot": ["advance 2", "install 0 8", "advance 1", "install 1 -3"],
    "two arrivals without a snapshot": ["advance 1", "snapshot 0", "advance 2", "install 0 4", "advance 1", "install 0 7"],
    "a replacement, then an arrival": ["advance 3", "snapshot 1", "replace 1 2", "advance 1", "install 1 6"],
    "as it should be": ["advance 2", "snapshot 0", "advance 1", "install 0 1", "snapshot 0", "advance 1", "install 0 2"],
}


def in_fractions(story: list[str]) -> list[float]:
    """x += arrival - y, where y is what the arrival answers: the last snapshot, arrival or replacement, at first x_0."""
    x, y = [F(0)] * SIZE, [F(0)] * SIZE
    for line in story:
        what, first, *value = line.split()
        span = range(BOUNDS[int(first)], BOUNDS[int(first) + 1]) if what != "advance" else range(SIZE)
        for j in span:
            if what == "advance":
                x[j] -= int(first) * F(1, 4) * int(GRADIENT[j])
            elif what == "snapshot":
                y[j] = x[j]
            elif what == "install":
                x[j], y[j] = x[j] + F(value[0]) - y[j], F(value[0])
            else:
                x[j] = y[j] = F(value[0])
    return [float(one) for one in x]


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_delay_corrected_arrivals_are_those_of_the_fractions_in_the_simulator_and_in_torch(story: list[str]) -> None:
    weight = nn.Parameter(torch.zeros(SIZE))
    layout = read_layout(nn.ParameterList([weight]))
    real = TorchTrainer(layout, layout.plan(2, False), How.CORRECT)
    simulated = LinearTrainer(BOUNDS, SIZE, How.CORRECT, agent=1, incarnation=0)
    assert real.bounds == BOUNDS
    for line in story:
        what, first, *value = line.split()
        if what == "advance":
            simulated.advance(int(first), ())
            with torch.no_grad():
                weight -= int(first) * 0.25 * torch.from_numpy(GRADIENT)
        else:
            for trainer in (real, simulated):
                piece = np.full(4, float(value[0]) if value else 0.0, np.float32)
                if what == "snapshot":
                    trainer.snapshot(int(first), piece)
                else:
                    trainer.install(int(first), piece, 1, what)
    expected = in_fractions(story)
    assert weight.tolist() == expected
    assert simulated.x.tolist() == expected


def test_a_mixed_arrival_moves_parameters_once_in_the_simulator_and_in_torch() -> None:
    weight = nn.Parameter(torch.zeros(SIZE))
    layout = read_layout(nn.ParameterList([weight]))
    real = TorchTrainer(layout, layout.plan(2, False), How.MIX)
    simulated = LinearTrainer(BOUNDS, SIZE, How.MIX, agent=1, incarnation=0)
    for trainer in (real, simulated):
        trainer.install(1, np.full(4, 8, np.float32), 1, "install")
    assert weight.tolist() == simulated.x.tolist() == [0.0] * SIZE
    for trainer in (real, simulated):
        trainer.pull(((1, 0.75),))
    simulated.advance(1, ())
    with torch.no_grad():
        weight -= 0.25 * torch.from_numpy(GRADIENT)
    expected = [(6.0 if j >= 4 else 0.0) - 0.25 * float(GRADIENT[j]) for j in range(SIZE)]
    assert weight.tolist() == simulated.x.tolist() == expected


def test_a_tilted_gradient_is_that_of_the_fractions_in_the_simulator_and_in_torch() -> None:
    """x <- x - lr (g + alpha (x - x*)), plain SGD, with a target of one shard."""
    weight = nn.Parameter(torch.zeros(SIZE))
    optimizer = torch.optim.SGD([weight], lr=0.25)
    layout = read_layout(nn.ParameterList([weight]))
    real = TorchTrainer(layout, layout.plan(2, False), How.TILT)
    simulated = LinearTrainer(BOUNDS, SIZE, How.TILT, agent=1, incarnation=0)
    pulls, x = ((1, 0.5),), [F(0)] * SIZE
    for trainer in (real, simulated):
        trainer.install(1, np.full(4, 8, np.float32), 1, "install")
    for _ in range(3):
        x = [a - F(1, 4) * (int(GRADIENT[j]) + (F(1, 2) * (a - 8) if j >= 4 else 0)) for j, a in enumerate(x)]
        weight.grad = torch.from_numpy(GRADIENT.copy())
        real.tilt(pulls, optimizer)
        optimizer.step()
        simulated.advance(1, pulls)
    assert weight.tolist() == simulated.x.tolist() == [float(one) for one in x]
