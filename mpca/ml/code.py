"""The user's own code in a stage: a model, a loss, an optimiser; by import path where there is one, else as objects.

An import path is "package.module:name". It can be saved as text, and whoever loads it needs the same package.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from mpca.checks import nearest, refused
from mpca.errors import ConfigError

__all__ = ["LOSSES", "OPTIMIZERS", "Recipe", "find", "import_path", "make_module"]

#: Where names without a module are.
LOSSES, OPTIMIZERS = "torch.nn.functional", "torch.optim"


def import_path(value: Any) -> str | None:
    """The text by which `find` finds the value; None: there is none, as for lambdas, instances, and what a notebook defines.

    Example:
        >>> import_path(torch.optim.SGD), import_path(lambda: None)
        ('torch.optim.sgd:SGD', None)
    """
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or isinstance(value, nn.Module):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is value else None


def find(key: str, path: str, home: str = "") -> Any:
    """The object at an import path.

    Args:
        key: the Param, for errors.
        path: "package.module:name", or a name in `home`.
        home: the module of names without one; empty: the module must be given.

    Raises:
        ConfigError: there is no such module or name.
    """
    module, colon, name = path.rpartition(":")
    if not colon and not home:
        raise refused(key, path, 'must be an import path, such as "my_package.nets:create", or the function itself')
    try:
        found = import_module(module or home)
    except ImportError as error:
        raise refused(key, path, f"cannot be imported here: {error}; install its package, or ship it (--py-files)") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise refused(key, path, f"{module or home} has no {part!r}; {nearest(part, _names(found))}")
        found = getattr(found, part)
    return found


def _names(found: Any) -> list[str]:
    return [name for name in dir(found) if not name.startswith("_")]


def make_module(model: Any, arguments: Mapping[str, Any]) -> nn.Module:
    """A new module; `model` makes it of the arguments, or is one to be copied.

    Raises:
        ConfigError: it makes something else, or takes other arguments.
    """
    if isinstance(model, nn.Module):
        if arguments:
            raise refused(
                "modelArgs", dict(arguments), "the model is a module, and takes none; give the function that makes it"
            )
        return copy.deepcopy(model)
    try:
        inspect.signature(model).bind(**arguments)
    except TypeError as error:
        raise refused("modelArgs", dict(arguments), f"{_named(model)}: {error}") from None
    except ValueError:
        pass  # a built-in without a signature: the call will tell
    made = model(**arguments)
    if not isinstance(made, nn.Module):
        raise ConfigError(f"model: {_named(model)} returns {type(made).__name__}: it must return a torch.nn.Module")
    return made


def _named(value: Any) -> str:
    return import_path(value) or repr(value)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What an agent trains."""

    model: Any  # makes a module, or is one
    loss: Callable[[Tensor, Tensor], Tensor]
    optimizer: Callable[..., torch.optim.Optimizer]
    model_args: dict[str, Any] = field(default_factory=dict)
    optimizer_args: dict[str, Any] = field(default_factory=dict)

    def module(self) -> nn.Module:
        """A new module with initial parameters."""
        return make_module(self.model, self.model_args)

    def loss_of(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch. One output a row is that of two classes, as binary losses take it."""
        if outputs.ndim == 1 or outputs.shape[1] == 1:
            outputs = outputs.reshape(-1)
            labels = labels.to(outputs.dtype)
        return self.loss(outputs, labels)
