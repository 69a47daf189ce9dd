"""Train functions with something behind their loop, or that never leave it."""

from __future__ import annotations

import time

import torch

import mpca


def works(seconds: dict[int, float], never: int) -> int:
    """Agent `never` goes on for ever; the others leave their loop, and work for so many seconds."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mpca.attach(model, optimizer)
    done = 0
    while True:
        if mpca.rank() != never and mpca.stopping():
            until = time.monotonic() + seconds[mpca.rank()]
            while time.monotonic() < until:
                time.sleep(0.05)  # stands for work
            return done
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
        time.sleep(0.005)  # stands for a step's work
        done += 1


def raises(agent: int) -> int:
    """That agent's function raises behind its loop."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mpca.attach(model, optimizer)
    data = torch.utils.data.TensorDataset(torch.randn(90, 4))
    for (x,) in mpca.shard(data, batch_size=3):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        time.sleep(0.005)  # stands for a step's work
    if mpca.rank() == agent:
        raise ValueError("the last evaluation has a mistake")
    return mpca.rank()


def forgets() -> str:
    """A loop whose author forgot one line."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
    return "done"


def returns_an_object(agent: int) -> object:
    """That agent returns what is no data."""
    found = raises(-1)
    return {"rank": found, "seen": [found, {found}]} if mpca.rank() == agent else found
