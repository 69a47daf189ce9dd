"""Train functions that the tests ship to real agent processes. `pause_s` stands for what a step computes, in seconds."""

from __future__ import annotations

import os
import sys
import threading
import time

import torch
from torch import nn

import mpca
from mpca.agent.context import current


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
        time.sleep(pause_s)  # stands for a step's work
    return done


def exits_early(size: int, code: int) -> None:
    """As `count_down` for five steps, and ends as a script does."""
    count_down(size, 0.001, 5)
    sys.exit(code)


def works_behind(size: int, pause_s: float, go: str) -> int:
    """As `count_down`, and behind its loop it works until there is that file."""
    done = count_down(size, pause_s)
    while not os.path.exists(go):
        time.sleep(0.01)  # stands for work: an evaluation, a last file
    return done


def stuck(size: int) -> None:
    """Take a few steps, then wait for a lock that nobody gives back; silence is shown after a second, not a minute."""
    stall = current().loop.stall  # type: ignore[union-attr]
    assert stall._since is not None, "what comes before attach is watched too"
    stall.after_s = 1.0
    count_down(size, 0.6, 3)  # slow steps, but none is silent for that long
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def never_asks(size: int) -> None:
    """A loop without end."""
    model = Counting(size)
    optimizer = Descent(model.weight)
    mpca.attach(model, optimizer)
    while True:
        model.weight.grad = torch.ones(size)
        optimizer.step()
        time.sleep(0.001)  # stands for a step's work


def ruined_once(size: int, bad: int, pause_s: float) -> int:
    """Adam on a loss that joins all elements, so that one which is not finite spoils them all; one update's gradient is NaN."""
    weight, bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.ones(2))
    optimizers = torch.optim.Adam([weight], lr=0.01), torch.optim.Adam([bias], lr=0.01)
    mpca.attach(nn.ParameterList([weight, bias]), optimizers)
    done = 0
    while not mpca.stopping():
        done += 1
        loss = (weight.sum() + bias.sum()) ** 2
        for optimizer in optimizers:
            optimizer.zero_grad()
        (loss * float("nan") if done == bad else loss).backward()
        for optimizer in optimizers:
            optimizer.step()
        time.sleep(pause_s)  # stands for a step's work
    return done


def chatter() -> dict[str, int]:
    """Print to everything there is, read stdin; never attach."""
    print("hello from print")
    os.write(1, b"hello from descriptor 1\n")
    os.system("echo hello from a shell")  # noqa: S605 - what a user's function may do
    return {"agent": mpca.rank(), "agents": mpca.world_size(), "read": len(os.read(0, 10))}


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
        time.sleep(600)  # until it is killed; a test that fails to kill it leaves nothing behind for ever
        os._exit(0)
    print(f"child={child}")
    count_down(4, pause_s)


def first_numbers() -> list[float]:
    """One number before attach (x_0 is made of such) and one after."""
    before = torch.rand(1).item()
    model = Counting(3)
    mpca.attach(model, Descent(model.weight))
    return [before, torch.rand(1).item()]


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1)
        self.weight = nn.Parameter(torch.zeros(3))
        self.teacher = nn.Parameter(torch.zeros(2), requires_grad=False)


def count_batches(steps: int) -> dict:
    model = Norm()
    optimizer = Descent(model.weight)
    mpca.attach(model, optimizer)
    for _ in range(steps):
        model.norm(torch.zeros(4, 1))
        model.weight.grad = torch.ones(3)
        optimizer.step()
    return {"batches": int(model.norm.num_batches_tracked), "teacher": model.teacher.tolist()}


def unfreeze(at: int) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD([{"params": list(model[1].parameters())}], lr=0.1)
    mpca.attach(model, optimizer)
    for step in range(2 * at):
        if step == at:
            model[0].requires_grad_(True)
            optimizer.add_param_group({"params": list(model[0].parameters())})
        optimizer.zero_grad()
        model(torch.ones(1, 2)).square().sum().backward()
        optimizer.step()


def met_bad_records(count: int) -> None:
    """As a stream's thread tells of them; the function ends before half a second is over."""
    from mpca.agent.context import current

    for number in range(count):
        current().loop.reading.bad.add(f"record{number}", "damaged")


def with_lbfgs(steps: int) -> tuple[float, float]:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    mpca.attach(model, optimizer)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model(torch.eye(2)) - 3).square().sum()
        loss.backward()
        return loss

    losses = [float(optimizer.step(closure)) for _ in range(steps)]
    return losses[0], losses[-1]


def adversarial(by_name: bool, critic_steps: int, pause_s: float) -> int:
    """A generator and its critic, of known gradients; the generator's graph is alive while the critic steps."""
    generator, critic = Counting(4), Counting(2)
    optimizers = [torch.optim.SGD(model.parameters(), lr=1.0) for model in (generator, critic)]
    for name, model, optimizer in zip(("generator", "critic"), (generator, critic), optimizers, strict=True):
        mpca.attach({name: model} if by_name else model, optimizer)
    done = 0
    while not mpca.stopping():
        made = generator.weight.square().sum()  # its backward reads the weights that it was made with
        for _ in range(critic_steps):
            critic.weight.grad = torch.ones(2)
            optimizers[1].step()
        made.backward()
        generator.weight.grad = torch.ones(4)
        optimizers[0].step()
        done += 1
        time.sleep(pause_s)  # stands for a step's work
    return done


def forgotten() -> None:
    """Two optimisers are made, one is attached, and nothing steps."""
    models = nn.Linear(2, 1), nn.Linear(1, 3)
    optimizers = [torch.optim.SGD(model.parameters(), lr=1.0) for model in models]
    mpca.attach(models[0], optimizers[0])
