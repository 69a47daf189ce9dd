"""Train functions that the tests ship to real agent processes."""

from __future__ import annotations

import os
import time

import torch
from torch import nn

import mpca


class Counting(nn.Module):
    """A parameter vector whose gradient is given: plain SGD with lr 1 subtracts exactly it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(size, dtype=torch.float32))
        self.register_buffer("seen", torch.zeros(2))


class Descent:
    """What `attach` needs of an optimiser, and no more: the first of torch.optim's imports the compiler, for seconds."""

    def __init__(self, weight: nn.Parameter) -> None:
        self.weight = weight
        self.hooks: list = []

    def register_step_post_hook(self, hook) -> None:
        self.hooks.append(hook)

    def step(self) -> None:
        with torch.no_grad():
            self.weight -= self.weight.grad
        for hook in self.hooks:
            hook(self, (), {})


def count_down(size: int, pause_s: float, steps: int | None = None, torch_sgd: bool = False) -> int:
    """Subtract one from every element at every update, until told to stop; returns how often."""
    model = Counting(size)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0) if torch_sgd else Descent(model.weight)
    mpca.attach(model, optimizer)
    done = 0
    while not mpca.stopping() and (steps is None or done < steps):
        model.weight.grad = torch.ones(size)
        optimizer.step()
        model.seen += 1
        done += 1
        mpca.log(loss=float(done))
        mpca.samples(4)
        time.sleep(pause_s)
    return done


def chatter() -> dict[str, int]:
    """Print to everything there is, read stdin; never attach."""
    print("hello from print")
    os.write(1, b"hello from descriptor 1\n")
    os.system("echo hello from a shell")
    return {"agent": mpca.agent(), "agents": mpca.agents(), "read": len(os.read(0, 10))}


def fail_in_step() -> None:
    def inner() -> None:
        raise ValueError("the user's own mistake")

    inner()


def refused() -> None:
    model = nn.Linear(2, 2).to(torch.bfloat16)
    mpca.attach(model, Descent(model.weight))


def unshippable() -> object:
    return (number for number in range(3))


def with_child(pause_s: float) -> None:
    """A data worker of its own, as DataLoader makes them; says the child's pid, then trains."""
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    print(f"child={child}")
    count_down(4, pause_s)


def first_numbers() -> list[float]:
    """One number before attach (x_0 is made of such) and one after."""
    before = torch.rand(1).item()
    model = Counting(3)
    mpca.attach(model, Descent(model.weight))
    return [before, torch.rand(1).item()]
