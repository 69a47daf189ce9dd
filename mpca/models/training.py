"""One optimiser update and one evaluation of a classifier. Loops, data and agents are the caller's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from mpca.checks import nearest, refused
from mpca.models import OPTIMIZERS

__all__ = ["create_optimizer", "evaluate_classifier", "train_step"]


def create_optimizer(model: nn.Module, name: str, momentum: float = 0.0, **settings: float) -> torch.optim.Optimizer:
    """Optimiser over the parameters of `model` that require gradients.

    Args:
        model: whose parameters are trained.
        name: one of `models.OPTIMIZERS`.
        momentum: for sgd and nesterov; 0: what `OPTIMIZERS` says.
        settings: torch's own keywords.
    """
    if name not in OPTIMIZERS:
        raise refused("optimizer.name", name, f"no such optimizer; {nearest(name, OPTIMIZERS)}")
    kind, own = OPTIMIZERS[name]
    moving = {"momentum": momentum} if momentum else {}
    made: torch.optim.Optimizer = getattr(torch.optim, kind)(
        [p for p in model.parameters() if p.requires_grad], **{**own, **settings, **moving}
    )
    return made


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor, half: bool = False
) -> torch.Tensor:
    """One update on one batch, with `half` computed in bfloat16; returns the batch's loss, still on its device."""
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(images.device.type, torch.bfloat16, enabled=half):
        loss = functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


def evaluate_classifier(
    model: nn.Module,
    state: Mapping[str, Any],
    images: torch.Tensor,
    labels: torch.Tensor,
    batch_size: int = 1024,
) -> dict[str, float]:
    """Load `state`, tensors or numpy arrays by name, and return ``{"error": share of wrong answers, "loss": mean}``."""
    model.load_state_dict({name: torch.as_tensor(value) for name, value in state.items()})
    model.eval()
    wrong, loss = 0, 0.0
    with torch.inference_mode():
        for some, answers in zip(images.split(batch_size), labels.split(batch_size), strict=True):
            logits = model(some)
            wrong += int((logits.argmax(dim=1) != answers).sum())
            loss += float(functional.cross_entropy(logits, answers, reduction="sum"))
    return {"error": wrong / len(labels), "loss": loss / len(labels)}
