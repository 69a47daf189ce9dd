"""A train function such as people write them: BatchNorm, an EMA teacher, adapters on a frozen base, channels_last."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import mpca


class Adapted(nn.Module):
    """LoRA as it is done: a frozen base in bfloat16, and what trains in float32."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.base = nn.Linear(size, size).to(torch.bfloat16).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(size, 2) * 0.1)
        self.up = nn.Parameter(torch.zeros(2, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x.bfloat16()).float() + x @ self.down @ self.up


def make() -> nn.ModuleDict:
    student = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 6), Adapted(6), nn.Linear(6, 6)
    )  # fmt: skip
    return nn.ModuleDict({"student": student, "teacher": nn.Linear(16, 6).requires_grad_(False)}).to(
        memory_format=torch.channels_last
    )


def with_teacher(steps: int | None) -> dict[str, Any]:
    """Train so many steps, or until told to stop; what this agent's own tensors were at the end."""
    model = make()
    student, teacher = model["student"], model["teacher"]
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
    mpca.attach(model, optimizer)
    done = 0
    while not mpca.stopping() and (steps is None or done < steps):
        optimizer.zero_grad()
        student(torch.randn(5, 2, 4, 4).to(memory_format=torch.channels_last)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for mine, its in zip(teacher.parameters(), student[4].parameters(), strict=True):
                mine.data.mul_(0.9).add_(its.data, alpha=0.1)
        done += 1
        mpca.samples(5)
    own = ("teacher", "base", "num_batches_tracked")
    local = {name: tensor.clone() for name, tensor in model.state_dict().items() if any(part in name for part in own)}
    return {"done": done, "local": local}
