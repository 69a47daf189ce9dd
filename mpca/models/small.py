"""Nets small enough for two cores: 8 x 8 grey images, ten classes."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["DigitsConvNet", "DigitsMlp"]


def _block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class DigitsConvNet(nn.Module):
    """Three 3 x 3 convolutions with BatchNorm, then one linear layer: float32[n, 1, 8, 8] -> logits float32[n, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(_block(1, 32), _block(32, 64), nn.MaxPool2d(2), _block(64, 64), nn.MaxPool2d(2))
        self.classifier = nn.Linear(64 * 2 * 2, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.features(images).flatten(1))
        return logits


class DigitsMlp(nn.Module):
    """One hidden layer and no buffers, for uses in which BatchNorm's statistics would disturb."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers(images)
        return logits
