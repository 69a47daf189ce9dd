"""The optimisers of one agent, and how their state begins anew: after a NaN, Adam's moments would ruin the next update too."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.nn import Parameter
    from torch.optim import Optimizer

__all__ = ["Optimizers"]


class Optimizers:
    """What was attached. Almost all optimisers make their state at the first update, so that nothing is kept for them here.

    One that has a state at `attach` goes back to that: Adagrad makes it when it is created, and it may come from a checkpoint.
    """

    def __init__(self) -> None:
        self._attached: list[tuple[Optimizer, dict[Any, Any]]] = []

    def __iter__(self) -> Iterator[Optimizer]:
        return (optimizer for optimizer, _ in self._attached)

    def add(self, optimizer: Optimizer) -> bool:
        """Remember its state as it is now. Once for each optimiser; whether it is a new one."""
        if any(known is optimizer for known in self):
            return False
        # the keys are the parameters themselves, which are not copied; a class of one's own may do without a state
        began = {key: deepcopy(state) for key, state in getattr(optimizer, "state", {}).items()}
        self._attached.append((optimizer, began))
        return True

    def reset(self) -> None:
        for optimizer, began in self._attached:
            if hasattr(optimizer, "state"):
                optimizer.state.clear()
                optimizer.state.update({key: deepcopy(state) for key, state in began.items()})

    def to_come(self, exchanged: Iterable[Parameter]) -> str:
        """What was made and is not attached, though it trains something that is not among `exchanged`; empty if nothing is.

        Nothing but the optimiser itself says that another `attach` is to follow, so the process's objects are looked through:
        some 50 ms, once.
        """
        known = set(map(id, exchanged))
        if self._foreign(known):
            gc.collect()  # one that nobody has any more does not count
        return self._foreign(known)

    def _foreign(self, known: set[int]) -> str:
        from torch.optim import Optimizer

        attached = set(map(id, self))
        # by its type: isinstance asks the object, and some import whole libraries when they are asked
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
