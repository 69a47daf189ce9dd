"""Nets for the benches, of a given size or number of tensors, or by name; with batches of noise. They learn nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from mpca.checks import nearest, refused
from mpca.models import INPUTS, MODELS, create

__all__ = ["PAPER", "SHAPES", "Shape", "Weights", "addition", "chain", "named", "of_paper", "residual", "shape_of"]

_FLOAT_BYTES = 4


class Weights(nn.Module):
    """One parameter of exactly `size_bytes` bytes without computation, to be exchanged and never trained."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(size_bytes // _FLOAT_BYTES))


class _Residual(nn.Module):
    """A 3 x 3 convolution with BatchNorm beside the identity, two of them a block, as in a ResNet for small images."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(images + self.body(images))


def residual(channels: int, blocks: int) -> nn.Module:
    """A residual net of one width: float32[n, 3, h, w] -> logits float32[n, 10]."""
    stem = nn.Conv2d(3, channels, 3, padding=1, bias=False)
    tail = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    return nn.Sequential(stem, *(_Residual(channels) for _ in range(blocks)), *tail)


def chain(width: int, layers: int) -> nn.Module:
    """Linear layers of one width: float32[n, width] -> logits float32[n, 10]. Few operations for each parameter."""
    body = [one for _ in range(layers) for one in (nn.Linear(width, width), nn.ReLU(inplace=True))]
    return nn.Sequential(*body, nn.Linear(width, 10))


@dataclass(frozen=True)
class Shape:
    """A net with the batch that one step of it takes."""

    name: str
    create: Callable[[], nn.Module]
    batch: tuple[int, ...]

    def inputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """One batch of noise with its labels, always the same."""
        generator = torch.Generator().manual_seed(1)
        return torch.randn(self.batch, generator=generator), torch.randint(10, self.batch[:1], generator=generator)


#: Models of the paper's ImageNet experiments, with its batch sizes (Table 1).
PAPER = {"resnet34": 128, "resnet152": 32, "vgg_a": 50}


def named(model: str, batch: int) -> Shape:
    """A model of the table, with a batch of `batch` images of its usual size."""
    return Shape(model, lambda: create(model), (batch, *INPUTS[model]))


def shape_of(net: str, batch: int) -> Shape:
    """A shape of the benches, which has a batch of its own, or a model of the table."""
    return SHAPES.get(net) or named(net, batch)


def of_paper(models: tuple[str, ...], batch: int | None) -> dict[str, int]:
    """Model -> images of a batch: `batch`, or as many as the paper's; without `models`, of all of the paper's.

    Raises:
        ConfigError: there is no model of such a name.
    """
    for name in models:
        if name not in MODELS and name not in SHAPES:
            raise refused("--model", name, f"no such model; {nearest(name, {**MODELS, **SHAPES})}")
    return {name: batch or PAPER.get(name, 1) for name in models or PAPER}


def addition(model: nn.Module, device: torch.device) -> Callable[[], torch.Tensor]:
    """Adds a vector to another in place, both as long as the model has parameters: 12 bytes for each are moved."""
    size = sum(one.numel() for one in model.parameters())
    one, other = torch.zeros(size, device=device), torch.zeros(size, device=device)
    return lambda: one.add_(other)


def _shapes(*shapes: Shape) -> dict[str, Shape]:
    return {shape.name: shape for shape in shapes}


#: The nets of `bench step` and `bench pause`. Sizes are those of their parameters.
SHAPES: dict[str, Shape] = _shapes(
    Shape("residual-1M", lambda: residual(32, 14), (16, 3, 16, 16)),
    Shape("residual-7M", lambda: residual(96, 11), (8, 3, 16, 16)),
    Shape("residual-100M", lambda: residual(384, 10), (16, 3, 8, 8)),
    Shape("residual-110-layers", lambda: residual(16, 54), (8, 3, 32, 32)),
    Shape("chain-7M", lambda: chain(604, 5), (128, 604)),
)
