"""Train functions that do what a train function should not do, for real agent processes."""

from __future__ import annotations

import os
import sys
import threading
import time

import torch
from torch import nn

import mpca
from mpca.agent.context import current
from mpca.agent.state import HOLDING
from tests.agent.jobs import Counting, Descent


def forks(child_does: str, steps: int) -> int:
    """Fork after a few steps, go on, and return the exit code of the child."""
    model = Counting(4)
    optimizer = Descent(model.weight)
    mpca.attach(model, optimizer)

    def step() -> None:
        model.weight.grad = torch.ones(4)
        optimizer.step()

    step()
    child = os.fork()
    if child == 0:
        if child_does == "return":
            return -1
        if child_does == "raise":
            raise ValueError("the child's own mistake")
        if child_does == "exit":
            sys.exit(3)
        if child_does == "step":
            step()
        if child_does == "ask":
            mpca.stopping()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for _ in range(steps):
        step()
    return code


def leaves_a_thread(name: str) -> str:
    threading.Thread(target=time.sleep, args=(60,), name=name).start()  # until it is killed with its process
    return "returned"


def steps_on_two_threads() -> list[str]:
    """One thread is in its step until its executor brings an arrival, and another one steps; returns what that one is told."""
    model = Counting(4)
    optimizer = Descent(model.weight)
    mpca.attach(model, optimizer)
    told: list[str] = []

    def step() -> None:
        model.weight.grad = torch.ones(4)
        optimizer.step()

    first = threading.Thread(target=step)
    first.start()
    while current().loop._machine.state is not HOLDING:  # type: ignore[union-attr]
        time.sleep(0.001)  # no event says that the other thread holds
    while first.is_alive():
        try:
            step()
        except Exception as error:
            told.append(str(error))
            print("refused")
        time.sleep(0.01)  # a hundred tries a second, until the arrival lets the other thread go
    return told


def asks_on_a_thread() -> tuple[int, bool]:
    """Train here, and ask on another thread whether the run is stopping; how often it asked in vain, and what it heard last."""
    model = Counting(4)
    optimizer = Descent(model.weight)
    mpca.attach(model, optimizer)
    asked, heard = 0, threading.Event()

    def ask() -> None:
        nonlocal asked
        while not mpca.stopping():
            asked += 1
        heard.set()

    threading.Thread(target=ask).start()
    while not heard.is_set():
        model.weight.grad = torch.ones(4)
        optimizer.step()
    return asked, heard.is_set()


def begins_a_group(world_size: int) -> str:
    """As a script for DistributedDataParallel does; each of its processes finds the others by the environment or a store."""
    import torch.distributed as distributed

    if world_size:
        store = distributed.HashStore()
        distributed.init_process_group("fake" if world_size > 1 else "gloo", store=store, rank=0, world_size=world_size)
    else:
        distributed.init_process_group("gloo")
    model = nn.Linear(2, 2)
    mpca.attach(model, Descent(model.weight))
    return "attached"


def begins_a_group_late() -> None:
    """After attach, as a script does that wraps its model just before the loop."""
    import torch.distributed as distributed

    model = Counting(4)
    optimizer = Descent(model.weight)
    mpca.attach(model, optimizer)
    distributed.init_process_group("fake", store=distributed.HashStore(), rank=0, world_size=2)
    model.weight.grad = torch.ones(4)
    optimizer.step()


class Numbers(torch.utils.data.Dataset):
    """Numbers, and a lambda that changes them."""

    def __init__(self) -> None:
        self.change = lambda number: number + 1

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return self.change(index)


def shares_lambdas(start_method: str) -> list[int]:
    share = mpca.shard(Numbers(), 4, epochs=1, num_workers=1, multiprocessing_context=start_method)
    return sorted(int(number) for batch in share for number in batch)


def collates_by_a_lambda() -> None:
    share = mpca.shard(list(range(8)), 4, num_workers=1, multiprocessing_context="spawn", collate_fn=lambda samples: samples)
    next(iter(share))


def attaches_again() -> int:
    """The same models and optimisers, in each way; then train."""
    model = Counting(4)
    optimizer = Descent(model.weight)
    for _ in range(3):
        mpca.attach(model, optimizer)
        mpca.attach([model], [optimizer])
    for _ in range(5):
        model.weight.grad = torch.ones(4)
        optimizer.step()
    return len(optimizer.hooks)
