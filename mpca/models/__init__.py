"""Models that a configuration can name, and the plain pieces of a training loop that belong to torch.

Not for exchange: nothing here knows of agents. A model is a creator function, called where it is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mpca.checks import keywords, nearest, refused
from mpca.extras import require

if TYPE_CHECKING:  # importing the table of names must not cost a torch import
    from torch import nn

__all__ = ["INPUTS", "MODELS", "OPTIMIZERS", "check", "create"]


def _digits_convnet() -> nn.Module:
    from mpca.models.small import DigitsConvNet

    return DigitsConvNet()


def _digits_mlp(*, hidden: int = 32) -> nn.Module:
    from mpca.models.small import DigitsMlp

    return DigitsMlp(hidden)


def _mixture_mlp(*, hidden: int = 64) -> nn.Module:
    from mpca.models.small import mixture_mlp

    return mixture_mlp(hidden)


def _warped_convnet() -> nn.Module:
    from mpca.models.small import warped_convnet

    return warped_convnet()


def _warped_resnet(norm: bool) -> nn.Module:
    from mpca.models.small import warped_resnet

    return warped_resnet(norm)


def _resnet_cifar(depth: int, *, classes: int = 10) -> nn.Module:
    from mpca.models.resnet_cifar import resnet_cifar

    return resnet_cifar(depth, classes)


def _imagenet(name: str, *, classes: int = 1000) -> nn.Module:
    from mpca.models.imagenet import imagenet

    return imagenet(name, classes)


#: The depths of He et al.'s table 6.
_CIFAR = {f"resnet{depth}": depth for depth in (20, 32, 44, 56, 110)}
_IMAGENET = ("alexnet", "googlenet", "resnet152", "resnet34", "vgg_a")

#: `model.name` of a configuration -> creator; its keyword-only arguments are the other keys of [model].
MODELS: dict[str, Callable[..., nn.Module]] = {
    "digits_convnet": _digits_convnet,
    "digits_mlp": _digits_mlp,
    "mixture_mlp": _mixture_mlp,
    "warped_convnet": _warped_convnet,
    "warped_resnet": partial(_warped_resnet, True),
    "warped_resnet_plain": partial(_warped_resnet, False),
    **{name: partial(_resnet_cifar, depth) for name, depth in _CIFAR.items()},
    **{name: partial(_imagenet, name) for name in _IMAGENET},
}

#: `model.name` -> shape of one sample that it is meant for: numbers, or an image's channels, height and width. The papers'
#: residual nets take other sizes too.
INPUTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("digits_convnet", "digits_mlp"), (1, 8, 8)),
    "mixture_mlp": (32,),
    **dict.fromkeys(("warped_convnet", "warped_resnet", "warped_resnet_plain"), (1, 12, 12)),
    **dict.fromkeys(_CIFAR, (3, 32, 32)),
    **dict.fromkeys(_IMAGENET, (3, 224, 224)),
}

#: `optimizer.name` of a configuration -> class in torch.optim, and what it has unless the settings say otherwise. The L2 of
#: MPCA's paper is coupled: its experiments use Adam, and not AdamW.
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "sgd": ("SGD", {}),
}


def check(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Check a model's name and options, and convert the options to their types.

    Raises:
        ConfigError: no such name or option, or a value is not allowed.
        EnvironmentRefused: the package that has the model is not installed.
    """
    if name not in MODELS:
        raise refused("model.name", name, f"no such model; {nearest(name, MODELS)}")
    own = keywords(MODELS[name], "model", options, ("name",))
    for key, value in own.items():  # all of them count something
        if value < 1:
            raise refused(f"model.{key}", value, "must be 1 or more")
    if name in _IMAGENET:
        require("torchvision")
    return own


def create(name: str, **options: Any) -> nn.Module:
    """Make the model of that name, with parameters from torch's generator in its present state."""
    own = check(name, options)
    return MODELS[name](**own)
