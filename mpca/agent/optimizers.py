"""The optimisers of one agent: their reset (after a NaN, Adam's moments would ruin the next update too), and their state as
tensors of the flat vector, for a method that exchanges it.

An optimiser makes its state at its first update. Before that the flat vector has zeros in its place, which is what SGD's
momentum, Adam's moments and its number of steps begin with; zeros that arrive make no state.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpca.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter
    from torch.optim import Optimizer

__all__ = ["Optimizers", "State", "check_exchanged", "unwrapped"]

_STEP = "step"  # a tensor of one number, which may be in host memory beside a model on a GPU

#: What holds another optimiser in its attribute `optimizer`, and calls that one's `step` in its own.
_WRAPPERS = {"accelerate.optimizer.AcceleratedOptimizer"}


def unwrapped(optimizer: Any) -> Any:
    """The optimiser inside of a wrapper, which has the step hooks."""
    kind = type(optimizer)
    return optimizer.optimizer if f"{kind.__module__}.{kind.__qualname__}" in _WRAPPERS else optimizer


def check_exchanged(optimizer: Any, method: str) -> None:
    """Refuse an optimiser whose state is not exchanged. A class of the user's own may keep more than the class it derives from.

    Raises:
        ConfigError: it is none of torch's SGD, Adam and AdamW.
    """
    import torch

    kind = type(optimizer)
    if kind not in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        raise ConfigError(
            f"method {method} averages the optimiser's state, of torch.optim's SGD, Adam and AdamW only: "
            f'optimizer={kind.__module__}.{kind.__qualname__}; take one of these, or method.updater = "keep"'
        )


def _keys(group: dict[str, Any]) -> tuple[str, ...]:
    """What an optimiser that `check_exchanged` takes keeps of each parameter of a group."""
    if "betas" not in group:
        return ("momentum_buffer",) if group["momentum"] else ()
    return ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else []), _STEP)


@dataclass(frozen=True, slots=True)
class State:
    """One tensor of an optimiser's state of one parameter, looked up at each exchange."""

    optimizer: Optimizer
    parameter: Parameter
    keys: tuple[str, ...]  # all that the optimiser keeps of this parameter
    key: str

    @property
    def made(self) -> bool:
        """Whether the optimiser has it."""
        state = self.optimizer.state
        return self.parameter in state and state[self.parameter].get(self.key) is not None

    @property
    def tensor(self) -> Tensor:
        """The tensor itself, in the parameter's order of memory; new zeros before it is made."""
        if not self.made:
            return self._zeros(self.key)
        state = self.optimizer.state[self.parameter]
        found: Tensor = state[self.key]
        if self.key != _STEP and found.stride() != self.parameter.stride():  # a copy of a gradient may have another order
            state[self.key] = found = self._zeros(self.key).copy_(found)
        return found

    def make(self) -> None:
        """Make all that the optimiser keeps of this parameter, as it would at its first update, so that it makes none then."""
        state = self.optimizer.state[self.parameter]
        for key in self.keys:
            if state.get(key) is None:
                state[key] = self._zeros(key)

    def _zeros(self, key: str) -> Tensor:
        import torch

        if key != _STEP:
            return torch.zeros_like(self.parameter, memory_format=torch.preserve_format, requires_grad=False)
        group = next(one for one in self.optimizer.param_groups if any(each is self.parameter for each in one["params"]))
        on_device = group.get("capturable") or group.get("fused")
        return torch.zeros((), device=self.parameter.device if on_device else None, dtype=torch.float32)


def _parameters(optimizer: Optimizer) -> set[int]:
    return {id(one) for group in getattr(optimizer, "param_groups", ()) for one in group["params"]}


class Optimizers:
    """All attached optimisers. Almost all make their state at the first update, so nothing is kept for them here.

    An optimiser that has a state at `attach` is reset to that state: Adagrad makes it at once, and a checkpoint may hold one.
    """

    def __init__(self) -> None:
        self._attached: list[tuple[Optimizer, dict[Any, Any]]] = []

    def __iter__(self) -> Iterator[Optimizer]:
        return (optimizer for optimizer, _ in self._attached)

    def add(self, optimizer: Optimizer) -> bool:
        """Add an optimiser, and keep a copy of its state. Returns False if it is known already."""
        if any(known is optimizer for known in self):
            return False
        # The keys are the parameters themselves and are not copied. A user's own class may have no state.
        began = {key: deepcopy(state) for key, state in getattr(optimizer, "state", {}).items()}
        self._attached.append((optimizer, began))
        return True

    def replaced_by(self, optimizer: Optimizer) -> list[Optimizer]:
        """The others that have a parameter of this one."""
        given = _parameters(optimizer)
        return [one for one in self if one is not optimizer and not given.isdisjoint(_parameters(one))]

    def reset(self) -> None:
        for optimizer, began in self._attached:
            if hasattr(optimizer, "state"):
                optimizer.state.clear()
                optimizer.state.update({key: deepcopy(state) for key, state in began.items()})

    def states(self, parameters: Iterable[tuple[str, Parameter]]) -> Iterator[tuple[str, State]]:
        """The states of named parameters, as `NAME/KEY`. A parameter that no optimiser has yet has none.

        Raises:
            ConfigError: two optimisers have one parameter.
        """
        held: dict[int, tuple[Optimizer, tuple[str, ...]]] = {}
        for optimizer in self:
            for group in optimizer.param_groups:
                for one in group["params"]:
                    if id(one) in held:
                        raise ConfigError(
                            f"two optimizers have one parameter: shape={list(one.shape)}; one state of it can be averaged: "
                            'give it to one of them, or take method.updater = "keep"'
                        )
                    held[id(one)] = optimizer, _keys(group)
        for name, parameter in parameters:
            if id(parameter) in held:
                optimizer, keys = held[id(parameter)]
                yield from ((f"{name}/{key}", State(optimizer, parameter, keys, key)) for key in keys)

    def to_come(self, exchanged: Iterable[Parameter]) -> str:
        """An existing optimiser that is not attached and trains a parameter outside of `exchanged`; empty if there is none.

        Only such an optimiser shows that another `attach` will follow. All objects of the process are searched for it: some
        50 ms, once.
        """
        known = set(map(id, exchanged))
        if self._foreign(known):
            gc.collect()  # an optimiser without references does not count
        return self._foreign(known)

    def _foreign(self, known: set[int]) -> str:
        from torch.optim import Optimizer

        attached = set(map(id, self))
        # Compare types, since isinstance reads an attribute of the object, and some objects then import whole libraries.
        for one in [one for one in gc.get_objects() if issubclass(type(one), Optimizer) and id(one) not in attached]:
            foreign = [
                parameter
                for group in getattr(one, "param_groups", ())
                for parameter in group["params"]
                if parameter.requires_grad and id(parameter) not in known
            ]
            if foreign:
                return f"optimizer={type(one).__name__}, parameters={len(foreign)}, first_shape={list(foreign[0].shape)}"
        return ""
