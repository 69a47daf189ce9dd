"""What a train function logs: `mpca.log` adds, and the loop takes the means since it took last.

A number on a GPU stays there until it is taken: reading it makes the agent wait for the device.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from mpca.errors import ConfigError

__all__ = ["Metrics", "number"]

MOST_NAMES = 100
_LONGEST_NAME = 100  # characters

_log = logging.getLogger("mpca.agent")


class Metrics:
    """Of one agent."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[Any, int]] = {}  # name -> sum and count since they were taken last
        self._newest: dict[str, Any] = {}
        self._told = False  # that there are too many names

    def add(self, given: Mapping[str, Any]) -> None:
        """Take numbers in. Beyond `MOST_NAMES`, new names are left out with one warning.

        Raises:
            ConfigError: a value is not a number, or a name is too long or no text.
        """
        for name, value in given.items():
            one = number("mpca.log takes", name, value)
            if name in self._newest or len(self._newest) < MOST_NAMES:
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = total + one, count + 1
                self._newest[name] = one
            elif not self._told:
                self._told = True
                _log.warning("mpca.log keeps %d names; left out, as every further one: %s", MOST_NAMES, name)

    def take(self) -> dict[str, float]:
        """Means of what was added since the last call, in the order in which names came first."""
        sums, self._sums = self._sums, {}
        return {name: float(total) / count for name, (total, count) in sums.items()}

    def newest(self, name: str) -> float:
        """The value that was added last; 0.0: none was."""
        return float(self._newest.get(name, 0.0))


def number(what: str, name: object, value: Any) -> Any:
    """A float, or a tensor of one element on another device than the CPU.

    Args:
        what: who wants it, for the error.
        name: of the metric.
        value: anything.

    Raises:
        ConfigError: it is not a number, or a whole one beyond all floats, or the name is too long or no text.
    """
    if not isinstance(name, str):
        raise ConfigError(f"{what} numbers by name, and the name must be text, got {name!r:.60}")
    if len(name) > _LONGEST_NAME:
        raise ConfigError(f"{what} numbers by name, which has at most {_LONGEST_NAME} characters: {name[:_LONGEST_NAME]}...")
    if hasattr(value, "detach"):  # a tensor; torch need not be imported here
        if value.numel() == 1 and not value.is_complex():
            one = value.detach().double()
            return one.item() if one.device.type == "cpu" else one.reshape(())
    elif not isinstance(value, (str, bytes)):
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"{what} numbers that fit into a float: {name} is a larger {type(value).__name__}") from None
        except (TypeError, ValueError):
            pass
    shape = f" of shape {list(value.shape)}" if hasattr(value, "shape") else f" {value!r:.60}"
    raise ConfigError(f"{what} numbers, or tensors of one element: {name} is a {type(value).__name__}{shape}; print text")
