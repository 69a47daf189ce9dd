"""The models that a train function attached, as the one model that is exchanged.

A single one is exchanged and saved under its own names. Several are saved as `torch.nn.ModuleDict` has them: each one's names
behind its own, which is the key of the dict that it was given in, or else its place: ``generator.0.weight``, ``1.bias``. What
two of them share is exchanged once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mpca.agent.names import unwrapped
from mpca.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["AttachedModels", "several"]

_TOGETHER = "mpca.attach({'generator': a, 'discriminator': b}, [optimizer_a, optimizer_b])"


def several(given: Any) -> list[Any]:
    """What `attach` was given: one, a list of them, or a dict of them by name."""
    if isinstance(given, Mapping):
        return list(given.values())
    return list(given) if isinstance(given, (list, tuple)) else [given]


class AttachedModels:
    """Of one agent, in the order in which they were attached."""

    def __init__(self) -> None:
        self._models: dict[str, nn.Module] = {}
        self._named = False

    def add(self, given: Any, begun: bool) -> None:
        """Take in what `attach` was given; models that are known already, or a part of one, change nothing.

        Args:
            given: a model, a list of models, or a dict of them by name.
            begun: whether the exchange has begun, so that no further model can take part.

        Raises:
            ConfigError: no model, one that comes too late, or names that cannot be.
        """
        from torch import nn

        # a ModuleDict is a model, and no dict
        pairs = list(given.items()) if isinstance(given, Mapping) else [(None, one) for one in several(given)]
        for _, model in pairs:
            if not isinstance(model, nn.Module):
                raise ConfigError(
                    f"not a model: type={type(model).__name__}; mpca.attach(model, optimizer) takes a torch.nn.Module, a list "
                    "of them, or a dict of them by name"
                )
        if not pairs:
            raise ConfigError(f"no model: mpca.attach was given an empty {type(given).__name__}; give it {_TOGETHER}")
        for name, model in pairs:
            holder = self._holder(model)
            if holder is None:
                if begun:
                    raise self._too_late(model)
                self._add(name, model)
            elif name is not None and (name != holder or unwrapped(self._models[name]) is not unwrapped(model)):
                raise ConfigError(
                    f"a model was attached twice: it is {holder!r}, or a part of it, and is to be {name!r}; attach each once"
                )

    @property
    def whole(self) -> nn.Module:
        """All of them as one model."""
        from torch import nn

        if len(self._models) == 1 and not self._named:
            return next(iter(self._models.values()))
        try:
            return nn.ModuleDict(self._models)
        except (KeyError, TypeError) as error:
            raise ConfigError(
                f"not a name for a model: {error.args[0]}, names={list(self._models)}; give others, as in {_TOGETHER}"
            ) from None

    def parameters(self) -> Iterable[nn.Parameter]:
        for model in self._models.values():
            yield from model.parameters()

    def _add(self, name: Any, model: nn.Module) -> None:
        self._named = self._named or name is not None
        name = str(len(self._models)) if name is None else name
        if name in self._models:
            raise ConfigError(f"two models of one name: name={name!r}; give each its own, as in {_TOGETHER}")
        self._models[name] = model

    def _holder(self, model: nn.Module) -> str | None:
        """The name of the model that this one is, or is a part of; wrapped by torch.compile or not."""
        inner = unwrapped(model)
        return next((name for name, one in self._models.items() if any(inner is part for part in one.modules())), None)

    @staticmethod
    def _too_late(model: nn.Module) -> ConfigError:
        tensors = [(name, list(one.shape)) for name, one in model.named_parameters()]
        first = f", first={tensors[0][0]} {tensors[0][1]}" if tensors else ""
        return ConfigError(
            "a model was attached after the exchange had begun: "
            f"model={type(model).__name__}, parameters={len(tensors)}{first}; make all models and their optimizers before the "
            f"first mpca.attach, or attach them together: {_TOGETHER}"
        )
