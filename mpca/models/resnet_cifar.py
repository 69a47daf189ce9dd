"""Residual nets for small images (He et al. 2015, arXiv 1512.03385, section 4.2): 6 n + 2 layers; n = 18 is ResNet-110.

torchvision has the ImageNet family only. Not for those: `imagenet.py`.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from mpca.models.initialisation import build

__all__ = ["ResNetCifar", "resnet_cifar"]

_WIDTHS = (16, 32, 64)


class _Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut without parameters (option A): every other pixel, new channels zero."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.added = stride, outputs - inputs

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        branch = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(images)), inplace=True)))
        if self.added:
            half = self.added // 2
            images = functional.pad(images[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, self.added - half))
        return functional.relu(branch + images, inplace=True)


class ResNetCifar(nn.Module):
    """A first convolution, three stages of n blocks with 16, 32 and 64 channels, one linear layer.

    float32[n, 3, h, w] -> logits float32[n, classes]; h and w of 4 and more (the paper: 32).
    """

    def __init__(self, depth: int, classes: int) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if rest or blocks < 1:
            raise ValueError(f"depth must be 6 n + 2: depth={depth}")
        self.conv1 = nn.Conv2d(3, _WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(_WIDTHS[0])
        stages, inputs = [], _WIDTHS[0]
        for width in _WIDTHS:
            stride = 1 if width == inputs else 2
            stages.append(nn.Sequential(_Block(inputs, width, stride), *(_Block(width, width, 1) for _ in range(blocks - 1))))
            inputs = width
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.stages(functional.relu(self.bn1(self.conv1(images)), inplace=True))
        logits: torch.Tensor = self.fc(features.mean(dim=(2, 3)))
        return logits


def resnet_cifar(depth: int, classes: int) -> nn.Module:
    """The net of that depth with He et al.'s initial parameters."""
    return build(lambda: ResNetCifar(depth, classes))
