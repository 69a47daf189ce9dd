"""Train functions that the engine's tests ship to real agents, by value: agents need not find this module.

Imports are inside, as in a user's own function. What a function should leave for the test to read, it writes into files,
so that it is there after a kill too. `pause_s` stands for what a step computes, in seconds.
"""

from __future__ import annotations

import ctypes
import os
import time

import numpy as np

import mpca

#: Classes of the digits that each of four agents sees.
SKEW = ((0, 1, 2), (3, 4), (5, 6, 7), (8, 9))


class Descent:
    """What `attach` needs of an optimiser, and no more: importing torch.optim's own takes seconds."""

    def __init__(self, parameters, lr: float) -> None:
        self.parameters, self.lr = list(parameters), lr
        self.hooks: list = []

    def register_step_post_hook(self, hook) -> None:
        self.hooks.append(hook)

    def step(self) -> None:
        for parameter in self.parameters:
            parameter.data.sub_(self.lr * parameter.grad)
            parameter.grad = None
        for hook in self.hooks:
            hook(self, (), {})


class Tape:
    """Every state of a model, appended to a file: after the update, and after the pull that follows it."""

    def __init__(self, folder: str, model, optimizer=None) -> None:
        self._tensors, self._optimizer = [*model.parameters(), *model.buffers()], optimizer
        self._fd = os.open(f"{folder}/agent{mpca.rank()}-{os.getpid()}.f32", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._updated = b""

    def update(self) -> None:
        self._updated = self._now()

    def pulled(self) -> None:
        os.write(self._fd, self._updated + self._now())

    def _now(self) -> bytes:
        states = [] if self._optimizer is None else [one["momentum_buffer"] for one in self._optimizer.state.values()]
        return b"".join(tensor.detach().numpy().tobytes() for tensor in (*self._tensors, *states))


def quadratic(
    folder: str,
    elements: int = 300,
    pause_s: float = 0.005,
    lr: float = 0.05,
    own_start: bool = False,
    own_shape: bool = False,
    tape: bool = True,
    poison: tuple[int, int] = (-1, -1),
    wild: tuple[int, int] = (-1, -1),
    fail: tuple[int, int] = (-1, -1),
    leave: tuple[int, int] = (-1, -1),
    obey: bool = False,
    momentum: float = 0.0,
) -> dict:
    """Each agent walks to a point of its own, until the run ends or the file `end` lies in `folder`.

    With `momentum` it does so by torch's own SGD, whose state is taped behind the buffer.

    `poison`, `wild`, `fail` and `leave` are (agent, step): write a NaN or 1e30 into the model, raise, return. With `obey` an
    agent does to itself what the file ``fault-<agent>`` in `folder` says.
    """
    import torch

    me = mpca.rank()
    if own_shape:
        elements += me
    model = torch.nn.Module()
    model.first = torch.nn.Parameter(torch.rand(elements - elements // 3))
    model.second = torch.nn.Parameter(torch.rand(elements // 3))
    model.register_buffer("walked", torch.zeros(7))
    if own_start:
        model.first.data += me
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum) if momentum else Descent(model.parameters(), lr)
    taped = Tape(folder, model, optimizer if momentum else None) if tape else None
    if taped:
        optimizer.register_step_post_hook(lambda *_: taped.update())  # before ours: what a snapshot would be
    mpca.attach(model, optimizer)
    start = torch.cat([model.first.detach(), model.second.detach(), model.walked]).numpy()
    points = [torch.rand_like(p) + me for p in model.parameters()]
    steps = 0
    while not mpca.stopping() and not os.path.exists(f"{folder}/end"):
        if (me, steps) == fail:
            raise ValueError("the user's own mistake")
        if (me, steps) == leave:
            break
        if obey:
            _obey(folder, me)
        if (me, steps) == poison:
            model.first.data[0] = float("nan")
        if (me, steps) == wild:
            model.first.data[0] = 1e30
        for parameter, point in zip(model.parameters(), points, strict=True):
            parameter.grad = parameter.detach() - point
        model.walked += 1 + me
        optimizer.step()
        if taped:
            taped.pulled()
        steps += 1
        time.sleep(pause_s)
    return {"agent": me, "pid": os.getpid(), "steps": steps, "start": start}


def evaluated(folder: str, state: dict) -> dict[str, float]:
    """An evaluation that leaves its process's number as `evaluating` and does not end before the file `go` lies in `folder`."""
    with open(f"{folder}/evaluating.part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"{folder}/evaluating.part", f"{folder}/evaluating")
    while not os.path.exists(f"{folder}/go"):
        time.sleep(0.01)  # stands for work
    return {"error": 0.5, "loss": 1.0}


def _obey(folder: str, me: int) -> None:
    """What only a process itself can do to itself, once each; that it began is told by ``fired-<agent>-<what>-<pid>``."""
    try:
        with open(f"{folder}/fault-{me}") as file:
            what, _, value = file.read().partition(" ")
    except FileNotFoundError:
        return
    os.rename(f"{folder}/fault-{me}", f"{folder}/fired-{me}-{what}-{os.getpid()}")
    if what == "segfault":
        ctypes.string_at(0)
    elif what == "abort":
        os.abort()
    elif what == "hold":  # a C function that does not release the interpreter's lock: no thread of Python runs meanwhile
        ctypes.PyDLL(None).usleep(int(float(value) * 1e6))
    elif what == "eat":  # so many MiB
        bytearray(b"x" * (int(value) << 20))
    elif what == "exit":
        os._exit(int(value))
    elif what == "fork":
        if os.fork() == 0:
            raise ValueError("the child's own mistake")
    elif what == "flood":
        for number in range(int(value)):
            print(f"line {number}")
    else:
        raise ValueError(what)


def streamed(folder: str, pause_s: float) -> str:
    """Goes through the run's data; returns what it read it by."""
    stream = _read(folder, pause_s, lambda: mpca.dataset("train"))
    return type(stream._streamed.data.store).__name__


def shared(folder: str, pause_s: float, samples: int, batch_size: int) -> None:
    """Goes through so many numbers, each its own label."""
    _read(folder, pause_s, lambda: mpca.shard([(number, number) for number in range(samples)], batch_size))


def _read(folder: str, pause_s: float, share):
    """Writes down the labels of what it was given, a line a batch, before it is used."""
    import torch

    model = torch.nn.Linear(1, 1)
    optimizer = Descent(model.parameters(), lr=0.0)
    mpca.attach(model, optimizer)
    with open(f"{folder}/labels-{mpca.rank()}-{os.getpid()}", "w", buffering=1) as out:
        batches = share()
        for _, labels in batches:
            if os.path.exists(f"{folder}/end"):
                break
            out.write(" ".join(map(str, labels.tolist())) + "\n")
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
            time.sleep(pause_s)
    return batches


def refused(how: str) -> None:
    """What `attach` or `shard` refuses."""
    import torch

    model = torch.nn.Linear(1, 1)
    if how == "half precision":
        model = model.bfloat16()
    elif how == "small set":
        mpca.shard([1, 2])
    mpca.attach(model, Descent(model.parameters(), lr=0.1))


def linear(parameters: int) -> None:
    """x -= g / 4 with a constant gradient: to the bit what `mpca.sim.trainers.LinearTrainer` does."""
    import torch

    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.zeros(parameters))
    optimizer = Descent(model.parameters(), lr=0.25)
    mpca.attach(model, optimizer)
    gradient = torch.tensor([float((mpca.rank() * 5 + j * 3) % 9 - 4) for j in range(parameters)])
    while not mpca.stopping():
        model.weight.grad = gradient.clone()
        optimizer.step()
        time.sleep(0.005)  # stands for a step's work


def regression(rows: np.ndarray, answers: np.ndarray, batch: int, lr: float) -> int:
    """Plain SGD on a linear model; step k of agent i takes batch k K + i of the rows, in a ring."""
    import torch

    model = torch.nn.Linear(rows.shape[1], 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    mpca.attach(model, optimizer)
    step = 0
    while not mpca.stopping():
        first = (step * mpca.world_size() + mpca.rank()) * batch % len(rows)
        x, y = torch.from_numpy(rows[first : first + batch]), torch.from_numpy(answers[first : first + batch])
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x)[:, 0], y).backward()
        optimizer.step()
        step += 1
    return step


def skewed(rows: np.ndarray, labels: np.ndarray, lr: float, pause_s: float) -> dict:
    """A softmax classifier on the agent's own classes; returns its own parameters."""
    import torch

    mine = np.isin(labels, SKEW[mpca.rank()])
    images, answers = torch.from_numpy(rows[mine]), torch.from_numpy(labels[mine])
    model = torch.nn.Linear(images.shape[1], 10)
    optimizer = Descent(model.parameters(), lr)
    mpca.attach(model, optimizer)
    while not mpca.stopping():
        some = torch.randint(len(images), (32,))
        torch.nn.functional.cross_entropy(model(images[some]), answers[some]).backward()
        optimizer.step()
        time.sleep(pause_s)
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def remembering(folder: str, pause_s: float = 0.01) -> dict:
    """Adam with a schedule on noise; after `attach` and after each iteration, a line of what the agent is then."""
    import hashlib

    import torch

    me = mpca.rank()
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.9)

    def now() -> str:
        def digest(tensors) -> str:
            found = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
            for tensor in tensors:
                found.update(tensor.numpy().tobytes())
            return found.hexdigest()

        states = [one for held in optimizer.state_dict()["state"].values() for one in held.values()]
        model_, optimizer_ = digest(model.state_dict().values()), digest(states)
        return f"{optimizer_} {optimizer.param_groups[0]['lr']:.9f} {scheduler.last_epoch} {model_}\n"

    with open(f"{folder}/agent{me}-{os.getpid()}.txt", "w", buffering=1) as tape:
        mpca.attach(model, optimizer, state={"scheduler": scheduler})
        tape.write(now())
        while not mpca.stopping() and not os.path.exists(f"{folder}/end"):
            optimizer.zero_grad()
            (model(torch.randn(16, 6)) - me).square().mean().backward()
            optimizer.step()
            scheduler.step()
            tape.write(now())
            time.sleep(pause_s)
    return {"agent": me, "pid": os.getpid()}
