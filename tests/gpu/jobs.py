"""Train functions for agents on a GPU. What they return says where things lay."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import mpca


class Counting(nn.Module):
    """A parameter vector whose gradient is given: plain SGD with lr 1 subtracts exactly it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(size, dtype=torch.float32))
        self.register_buffer("seen", torch.zeros(2))


def count_down(size: int, busy: int, pause_s: float) -> dict[str, Any]:
    """Subtract one from every element at every update, behind products of matrices that keep the GPU busy for a while."""
    device = mpca.device()
    model, ones = Counting(size).to(device), torch.ones(size, device=device)
    load = torch.rand(busy, busy, device=device) / busy
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    mpca.attach(model, optimizer)
    done = 0
    while not mpca.stopping():
        for _ in range(4):
            load = load @ load
        model.weight.grad = ones + 0 * load.sum()
        optimizer.step()
        model.seen += 1
        done += 1
        mpca.log(done=0 * model.weight[0] + done)  # on the GPU; read when it is sent
        time.sleep(pause_s)  # stands for what a step does without the GPU
    return {
        "done": done,
        "device": str(model.weight.device),
        "current": torch.cuda.current_device(),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        "modules": sorted({name.partition(".")[0] for name in sys.modules}),
    }


def half_precision(bad: int) -> dict[str, Any]:
    """Adam on a net in channels_last under autocast, with a gradient scaler; the loss of one batch is infinite."""
    device = mpca.device()
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device.type, init_scale=16.0)
    mpca.attach(model, optimizer)
    batches = skipped = 0
    computed_in = None
    while not mpca.stopping():
        batches += 1
        images = torch.randn(16, 3, 8, 8, device=device).to(memory_format=torch.channels_last)
        with torch.autocast(device.type, dtype=torch.float16):
            scores = model(images)
            loss = scores.float().square().mean()
        computed_in = scores.dtype
        optimizer.zero_grad()
        scaler.scale(loss * float("inf") if batches == bad else loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
        mpca.samples(len(images))
    return {
        "batches": batches,
        "skipped": skipped,
        "computed_in": str(computed_in),
        "channels_last": model[0].weight.is_contiguous(memory_format=torch.channels_last),
        "device": str(model[0].weight.device),
    }


def out_of_memory(elements: int) -> None:
    """What the exchange needs does not fit beside the model; nor does a batch afterwards."""
    device = mpca.device()
    model = nn.Linear(elements, 1, bias=False).to(device)
    torch.cuda.set_per_process_memory_fraction(2**-20)
    try:
        mpca.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
    except mpca.MpcaError as error:
        print(f"attach: {error}")
    torch.empty(elements, device=device)


def classify(folder: str, name: str, batch: int) -> dict[str, Any]:
    """Classify noise with a model of the table, in bfloat16, until the run ends. Leaves the process's number in `folder`."""
    from mpca.models import INPUTS, create

    device = mpca.device()
    torch.manual_seed(mpca.rank())
    images, labels = torch.randn(batch, *INPUTS[name], device=device), torch.randint(10, (batch,), device=device)
    model = create(name).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    mpca.attach(model, optimizer)
    Path(folder, f"agent-{mpca.rank()}").write_text(str(os.getpid()))
    steps = 0
    while not mpca.stopping():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        mpca.log(loss=loss.detach())
        steps += 1
    return {
        "pid": os.getpid(),
        "device": str(next(model.parameters()).device),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        "steps": steps,
        "loss": float(loss.detach()),
    }
