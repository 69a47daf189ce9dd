"""The optimisers of one agent, and their reset: after a NaN, Adam's moments would ruin the next update too."""

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

    def reset(self) -> None:
        for optimizer, began in self._attached:
            if hasattr(optimizer, "state"):
                optimizer.state.clear()
                optimizer.state.update({key: deepcopy(state) for key, state in began.items()})

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
