"""Models that a configuration can name, and the plain pieces of a training loop that belong to torch.

Not for exchange: nothing here knows of agents. A model is a creator function, called where it is trained.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mpca.checks import nearest, refused, unknown

if TYPE_CHECKING:  # importing the table of names must not cost a torch import
    from torch import nn

__all__ = ["MODELS", "check", "create"]


def _digits_convnet() -> nn.Module:
    from mpca.models.small import DigitsConvNet

    return DigitsConvNet()


def _digits_mlp(hidden: int = 32) -> nn.Module:
    from mpca.models.small import DigitsMlp

    return DigitsMlp(hidden)


#: `model.name` of a configuration -> creator; its keywords are the other keys of [model].
MODELS: dict[str, Callable[..., nn.Module]] = {
    "digits_convnet": _digits_convnet,
    "digits_mlp": _digits_mlp,
}


def check(name: str, options: dict[str, Any]) -> None:
    """Raises ConfigError for a name or an option that there is not."""
    if name not in MODELS:
        raise refused("model.name", name, f"no such model; {nearest(name, MODELS)}")
    for key in options:
        if key not in inspect.signature(MODELS[name]).parameters:
            raise unknown(f"model.{key}", inspect.signature(MODELS[name]).parameters)


def create(name: str, **options: Any) -> nn.Module:
    """Make the model of that name, initialised from torch's generator as it stands."""
    check(name, options)
    return MODELS[name](**options)
