"""Train functions that look at what a fork may have spoilt. They attach, since an agent must."""

from __future__ import annotations

import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import mpca
from tests.agent.jobs import Counting, Descent


def _attach() -> None:
    model = Counting(3)
    mpca.attach(model, Descent(model.weight))


def surroundings() -> dict[str, Any]:
    _attach()
    return {
        "torch_threads": torch.get_num_threads(),
        "bad_fork": torch.cuda._is_in_bad_fork(),
        "cuda": torch.cuda.is_initialized(),
        "group": os.getpgrp() == os.getpid(),
        "folder": os.getcwd(),
        "argument": [Path(one).name for one in sys.argv],
        "main_thread": threading.current_thread() is threading.main_thread(),
        "numbers": [random.random(), float(np.random.rand()), torch.rand(1).item()],
    }


def load(method: str) -> list[int]:
    """Batches by two workers of a DataLoader."""
    _attach()
    data = TensorDataset(torch.arange(8))
    loader = DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context=method)
    return [int(one) for (batch,) in loader for one in batch]


def train(steps: int) -> list[bytes]:
    """A convolutional net large enough that torch computes with all of its threads."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
    images, labels = torch.rand(32, 3, 24, 24), torch.randint(10, (32,))
    model(images)
    optimizer = torch.optim.Adam(model.parameters())
    mpca.attach(model, optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return [one.detach().numpy().tobytes() for one in model.parameters()]
