"""The initial parameters of the paper (section 6.5): Gaussian numbers, scaled as He et al. suggest.

Not for x_0 of a run: agents draw it here, each from the run's seed, and agree on it in `attach`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

__all__ = ["build", "he_normal"]


def he_normal(model: nn.Module) -> None:
    r"""Draw every parameter of `model` from torch's generator in its present state.

    .. math:: w \sim N(0, 2 / n_l), \quad n_l = k_l^2 c_l, \quad b = 0        (He et al. 2015, arXiv 1502.01852, eq. 10)

    This is the fan-in form, which keeps the variance of a forward pass. torchvision has their other form, fan-out (eq. 14), for
    convolutions; they find that both converge. Only fan-in also fits linear layers: VGG-A's first has 25,088 inputs and 4,096
    outputs. BatchNorm begins as the identity, in residual branches too.

    Raises:
        TypeError: no rule fits a module that has parameters of its own.
    """
    for name, module in model.named_modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            fan_in = module.weight[0].numel()
            nn.init.normal_(module.weight, std=math.sqrt(2 / fan_in))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
        elif [*module.parameters(recurse=False)] or [*module.buffers(recurse=False)]:
            raise TypeError(f"no rule to initialise a module: name={name!r}, type={type(module).__name__}")


def build(create: Callable[[], nn.Module]) -> nn.Module:
    """A model whose parameters `he_normal` draws. Its constructor draws none, which saves time (VGG-A: 133 million)."""
    with torch.device("meta"):
        model = create()
    model.to_empty(device="cpu")
    he_normal(model)
    return model
