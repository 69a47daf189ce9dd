"""Models that stages of tests name by their import path. Executors do not have this module: it travels by value."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["Line", "Squeezed", "half", "image_net", "nothing", "tokens", "two"]


class Line(nn.Module):
    """Numbers to some classes."""

    def __init__(self, classes: int = 2, inputs: int = 2) -> None:
        super().__init__()
        self.out = nn.Linear(inputs, classes)

    def forward(self, features: Tensor) -> Tensor:
        return self.out(features)


class Squeezed(Line):
    """Without the axis of rows, where there is but one row."""

    def forward(self, features: Tensor) -> Tensor:
        return self.out(features).squeeze()


def two(hidden: int = 8, classes: int = 2) -> nn.Module:
    """With layers that behave otherwise in training."""
    return nn.Sequential(nn.Linear(2, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.5), nn.Linear(hidden, classes))


def half() -> nn.Module:
    """One output for two classes."""
    return nn.Linear(2, 1)


def nothing() -> None:
    """Makes no module."""


def tokens() -> nn.Module:
    return nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(8, 2))


def image_net(classes: int = 2) -> nn.Module:
    """Looks at the colour alone."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, classes))
