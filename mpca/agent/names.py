"""A model's names without wrappers' prefixes: ``torch.compile`` adds ``_orig_mod.``, DataParallel ``module.``.

Saved models, backups and Hello have the names of the wrapped model, so that a run resumes, and its result loads, with or
without the wrapper. A wrapper is recognised by its class, anywhere in the model: a user's own module called ``module`` keeps
its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from torch import nn

__all__ = ["own_names", "unwrapped"]

#: Class name -> attribute of the wrapped model. By name, since importing the first class's module takes seconds of CPU.
_WRAPPERS = {
    "torch._dynamo.eval_frame.OptimizedModule": "_orig_mod",
    "torch.nn.parallel.data_parallel.DataParallel": "module",
    "torch.nn.parallel.distributed.DistributedDataParallel": "module",
}


def _holder(module: nn.Module) -> str | None:
    """The attribute in which `module` holds the model that it wraps; None when it is no wrapper."""
    return next(
        (name for kind in type(module).__mro__ if (name := _WRAPPERS.get(f"{kind.__module__}.{kind.__qualname__}"))), None
    )


def unwrapped(module: nn.Module) -> nn.Module:
    """The model inside of all wrappers."""
    while (held := _holder(module)) is not None:
        module = cast("nn.Module", module._modules[held])
    return module


def own_names(model: nn.Module) -> Callable[[str], str]:
    """A function from a name in `model`'s ``state_dict`` to the name without wrappers.

    Example:
        >>> from torch import nn
        >>> name = own_names(nn.Sequential(nn.DataParallel(nn.Linear(1, 1))))
        >>> name("0.module.weight")
        '0.weight'
    """
    wrappers = [
        (f"{prefix}." if prefix else "", f"{held}.")
        for prefix, module in model.named_modules(remove_duplicate=False)
        if (held := _holder(module)) is not None
    ]
    wrappers.sort(key=lambda one: -len(one[0]))  # inner ones first, since their prefixes contain the outer ones

    def own(name: str) -> str:
        for prefix, held in wrappers:
            if name.startswith(prefix + held):
                name = prefix + name[len(prefix + held) :]
        return name

    return own
