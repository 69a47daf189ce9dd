"""The models that a train function attached, as one model to exchange.

A single model keeps its own names. Several models get names as in `torch.nn.ModuleDict`, with a prefix for each model: its key
in the dict, or else its position: ``generator.0.weight``, ``1.bias``. A tensor that two models share is exchanged once.
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
    """The items of an argument of `attach`, which is one object, a list, or a dict by name."""
    if isinstance(given, Mapping):
        return list(given.values())
    return list(given) if isinstance(given, (list, tuple)) else [given]


class AttachedModels:
    """All attached models of one agent, in the order of `attach`."""

    def __init__(self) -> None:
        self._models: dict[str, nn.Module] = {}
        self._named = False

    def add(self, given: Any, begun: bool) -> None:
        """Add the models of one call of `attach`. A known model, or a part of one, changes nothing.

        Args:
            given: a model, a list of models, or a dict of models by name.
            begun: whether the exchange has begun, so that no further model can take part.

        Raises:
            ConfigError: an argument is no model, a model comes too late, or a name is taken or not allowed.
        """
        from torch import nn

        # A ModuleDict is a model here, not a dict.
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
                    f"a model was attached twice: as {holder!r}, or as a part of it, and as {name!r}; attach each model once"
                )

    @property
    def whole(self) -> nn.Module:
        """All models as one model."""
        from torch import nn

        if len(self._models) == 1 and not self._named:
            return next(iter(self._models.values()))
        try:
            return nn.ModuleDict(self._models)
        except (KeyError, TypeError) as error:
            raise ConfigError(
                f"not a name for a model: {error.args[0]}, names={list(self._models)}; use other names, as in {_TOGETHER}"
            ) from None

    def parameters(self) -> Iterable[nn.Parameter]:
        for model in self._models.values():
            yield from model.parameters()

    def _add(self, name: Any, model: nn.Module) -> None:
        self._named = self._named or name is not None
        name = str(len(self._models)) if name is None else name
        if name in self._models:
            raise ConfigError(f"two models have one name: name={name!r}; give each its own, as in {_TOGETHER}")
        self._models[name] = model

    def _holder(self, model: nn.Module) -> str | None:
        """The name of the known model that equals or contains this one; wrappers such as torch.compile's do not matter."""
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
