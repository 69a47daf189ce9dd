"""Models that a configuration can name, and the plain pieces of a training loop that belong to torch.

Not for exchange: nothing here knows of agents. A model is a creator function, called where it is trained.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mpca.errors import ConfigError

if TYPE_CHECKING:  # importing the table of names must not cost a torch import
    from torch import nn

__all__ = ["MODELS", "create"]


def _digits_convnet() -> nn.Module:
    from mpca.models.small import DigitsConvNet

    return DigitsConvNet()


def _digits_mlp() -> nn.Module:
    from mpca.models.small import DigitsMlp

    return DigitsMlp()


#: `model.name` of a configuration -> creator.
MODELS: dict[str, Callable[[], nn.Module]] = {
    "digits_convnet": _digits_convnet,
    "digits_mlp": _digits_mlp,
}


def create(name: str) -> nn.Module:
    """Make the model of that name, freshly initialised from torch's current seed."""
    if name not in MODELS:
        raise ConfigError(f"unknown model: model.name={name!r}; one of {', '.join(sorted(MODELS))}")
    return MODELS[name]()
