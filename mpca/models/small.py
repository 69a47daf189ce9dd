"""Nets small enough for two cores, for ten classes: of 8 x 8 digits, or of the computed data sets (`data/generated.py`)."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["DigitsConvNet", "DigitsMlp", "Residual", "mixture_mlp", "warped_convnet", "warped_resnet"]


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


def mixture_mlp(hidden: int = 64) -> nn.Sequential:
    """Two hidden layers: float32[n, 32] -> logits float32[n, 10]. 6,922 parameters, no buffers."""
    return nn.Sequential(
        nn.Linear(32, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
    )  # fmt: skip


def warped_convnet() -> nn.Sequential:
    """Two convolutions and two linear layers: float32[n, 1, 12, 12] -> logits float32[n, 10]. 9,938 parameters, no buffers."""
    features = (_conv(1, 8), nn.MaxPool2d(2), nn.ReLU(), _conv(8, 16), nn.MaxPool2d(2), nn.ReLU())
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(16 * 3 * 3, 56), nn.ReLU(), nn.Linear(56, 10))


def warped_resnet(norm: bool) -> nn.Sequential:
    """A convolution and two residual blocks of 16 channels: float32[n, 1, 12, 12] -> logits float32[n, 10].

    Args:
        norm: with BatchNorm: 10,970 parameters and 160 numbers in buffers. Without: 10,890 parameters.
    """
    stem = (_conv(1, 16, norm), *_norm(16, norm), nn.MaxPool2d(2), nn.ReLU())
    return nn.Sequential(
        *stem, Residual(16, norm), nn.MaxPool2d(2), Residual(16, norm), nn.Flatten(), nn.Linear(16 * 3 * 3, 10)
    )


class Residual(nn.Module):
    """Two 3 x 3 convolutions beside the identity."""

    def __init__(self, channels: int, norm: bool) -> None:
        super().__init__()
        first, second = _conv(channels, channels, norm), _conv(channels, channels, norm)
        self.body = nn.Sequential(first, *_norm(channels, norm), nn.ReLU(), second, *_norm(channels, norm))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(images + self.body(images))


def _conv(inputs: int, outputs: int, norm: bool = False) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=not norm)


def _norm(channels: int, norm: bool) -> tuple[nn.Module, ...]:
    return (nn.BatchNorm2d(channels),) if norm else ()
