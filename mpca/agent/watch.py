"""Notices changes of a model after `attach`: layers that are unfrozen, replaced, added or pruned, and parameters that only the
optimiser got. Parameters that train without being exchanged would silently differ between agents.

Every update makes this check. An unchanged model costs one C-level pass over the objects in its modules' tables and the tables'
lengths (a buffer may be assigned anew, so only their number counts). When something differs, names are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Any

import torch
from torch import nn

from mpca.agent.layout import Layout
from mpca.errors import ConfigError

__all__ = ["ModelWatch"]

_requires_grad = attrgetter("requires_grad")
_REMEDY = "make, freeze and prune layers before mpca.attach(model, optimizer)"


class ModelWatch:
    """One model and its optimisers at `attach`. Optimisers that are attached later are watched too.

    Raises:
        ConfigError: an optimiser has a parameter that the model does not have.
    """

    def __init__(self, model: nn.Module, optimizers: Iterable[torch.optim.Optimizer], layout: Layout) -> None:
        self._model, self._optimizers = model, optimizers
        self._exchanged = {id(entry.source) for entry in layout.entries if entry.kind == "parameter"}
        # Parameters tied by assigned data are two objects; anything that moves one of them unties them.
        named = dict(model.named_parameters(remove_duplicate=False))
        pairs = [(alias, name) for alias, name in layout.tied.items() if alias in named and named[alias] is not named[name]]
        self._tied = [(alias, name, named[alias], named[name]) for alias, name in pairs]
        self._given: list[int] = []  # parameters of each optimizer's groups
        self._look()
        self._names = self._describe()
        for optimizer, parameter in self._unknown():
            raise ConfigError(
                f"an optimizer has a parameter that no attached model has: optimizer={type(optimizer).__name__}, "
                f"shape={list(parameter.shape)}; it would train without being exchanged: attach its model too, as in "
                "mpca.attach([model, criterion], optimizer)"
            )

    def check(self) -> None:
        """Compare the model with its state at `attach`.

        Raises:
            ConfigError: a tensor that trains or is saved is not exchanged; names it and the remedy.
        """
        if self._ids() != self._seen or any(map(_requires_grad, self._frozen)):
            self._compare()
            self._look()
        for alias, name, one, other in self._tied:
            if one.data_ptr() != other.data_ptr():
                raise ConfigError(
                    f"the model changed after attach: parameter={alias} had the memory of {name} and has it no more; tie them "
                    f"as one Parameter object, or {_REMEDY}"
                )
        if self._optimized() != self._given:
            self._compare_optimizers()
            self._given = self._optimized()

    # ---- what is compared at every update --------------------------------------------------------------------------

    def _look(self) -> None:
        modules = list(self._model.modules())
        self._tables = [table for one in modules for table in (one._parameters, one._modules, one._buffers)]
        self._filled: list[dict[str, Any]] = [table for one in modules for table in (one._parameters, one._modules) if table]
        self._held = modules, list(self._model.parameters())  # kept alive, so that no other object gets their ids
        goes_along = self._exchanged | {id(one) for _, _, one, _ in self._tied}
        self._frozen = [p for p in self._held[1] if id(p) not in goes_along]
        self._seen = self._ids()
        self._given = self._optimized()

    def _ids(self) -> tuple[Any, ...]:
        return (*map(id, chain.from_iterable(map(dict.values, self._filled))), *map(len, self._tables))

    def _optimized(self) -> list[int]:
        return [len(group["params"]) for one in self._optimizers for group in getattr(one, "param_groups", ())]

    # ---- when something differs --------------------------------------------------------------------------------------

    def _describe(self) -> dict[str, tuple[str, int]]:
        """All tensors of an exchange and of a saved model, by name: their kind, and the object's id for a parameter."""
        named: dict[str, tuple[str, int]] = {
            name: ("parameter", id(one)) for name, one in self._model.named_parameters(remove_duplicate=False)
        }
        for prefix, module in self._model.named_modules():
            for key, tensor in module._buffers.items():
                if tensor is not None and key not in module._non_persistent_buffers_set:
                    named[f"{prefix}.{key}" if prefix else key] = "buffer", 0
        return named

    def _compare(self) -> None:
        now = self._describe()
        for name, (kind, one) in now.items():
            if name not in self._names:
                raise ConfigError(f"the model changed after attach: new {kind}={name}; {_REMEDY}")
            if (kind, one) != self._names[name]:
                raise ConfigError(f"the model changed after attach: {kind}={name} was replaced by another; {_REMEDY}")
        for name, (kind, _) in self._names.items():
            if name not in now:
                raise ConfigError(f"the model changed after attach: {kind}={name} is gone; {_REMEDY}")
        frozen = set(map(id, self._frozen))
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad and id(parameter) in frozen:
                raise ConfigError(
                    f"the model changed after attach: parameter={name} was frozen and now requires a gradient; {_REMEDY}. To "
                    "train a layer later, leave requires_grad=True at attach and give it to the optimizer later, or a "
                    "learning rate of 0 until then"
                )

    def _compare_optimizers(self) -> None:
        for _, parameter in self._unknown():
            raise ConfigError(
                f"the optimizer was given a parameter after attach that the model does not have: "
                f"shape={list(parameter.shape)}; it would train without being exchanged: make it part of the model "
                "before mpca.attach(model, optimizer)"
            )

    def _unknown(self) -> Iterator[tuple[torch.optim.Optimizer, torch.Tensor]]:
        """Parameters of optimisers that the model does not have."""
        known = self._exchanged | set(map(id, self._held[1]))
        for optimizer in self._optimizers:
            for group in getattr(optimizer, "param_groups", ()):
                for parameter in group["params"]:
                    if parameter.requires_grad and id(parameter) not in known:
                        yield optimizer, parameter
