"""torch's compiler is imported when something is compiled, not when an optimiser is made.

Making an optimiser runs ``import torch._dynamo``, for two of its functions: `disable` and `graph_break`. That import, with
sympy behind it, costs more CPU than torch's own (4.6 s against 3.1 s, measured), in every agent. While nothing compiles, both
functions mean nothing, so until somebody asks for anything else of that module a stand-in answers them; whoever does, such as
`torch.compile`, gets the real one, and what was handed out before is disabled for it then.
"""

from __future__ import annotations

import importlib
import sys
import threading
from types import ModuleType
from typing import Any

import torch

__all__ = ["put_off_dynamo"]

_NAME = "torch._dynamo"
_KEPT = "__dynamo_disable"  # where `torch._compile` keeps the answer; by name, since a class would mangle it


class _StandIn(ModuleType):
    """Stands for `torch._dynamo` in ``sys.modules`` until the real one is needed."""

    def __init__(self) -> None:
        super().__init__(_NAME, __doc__)
        self._lock = threading.RLock()
        self._handed_out: list[tuple[Any, bool]] = []  # (function that is not to be compiled, nor what it calls)

    def graph_break(self, *args: Any, **kwargs: Any) -> None:
        """Means something to the compiler alone."""
        real = _real()
        if real is not None:
            real.graph_break(*args, **kwargs)

    def disable(self, fn: Any = None, recursive: bool = True, **options: Any) -> Any:
        # `torch._compile`, which asks on behalf of torch's own functions and keeps the answer in an attribute, is the one
        # that says wrapping=False. What anybody else gets may be called from compiled code later, so it must be the real thing.
        if options != {"wrapping": False} or not callable(fn):
            return self._load().disable(fn, recursive, **options)
        with self._lock:
            real = _real()
            if real is not None:
                return real.disable(fn, recursive, **options)
            self._handed_out.append((fn, recursive))
        return fn

    def __getattr__(self, name: str) -> Any:
        # inspect and warnings ask every module for names such as __file__; only __path__ says that a part is imported
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        return getattr(self._load(), name)

    def _load(self) -> ModuleType:
        with self._lock:
            real = _real()
            if real is not None:
                return real
            del sys.modules[_NAME]
            vars(torch).pop("_dynamo", None)
            try:
                real = importlib.import_module(_NAME)
            except BaseException:
                sys.modules[_NAME] = self
                raise
            for fn, recursive in self._handed_out:
                setattr(fn, _KEPT, real.disable(fn, recursive, wrapping=False))
            self._handed_out.clear()
            return real


def _real() -> ModuleType | None:
    module = sys.modules.get(_NAME)
    return None if isinstance(module, _StandIn) else module


def put_off_dynamo() -> None:
    """For a process of ours, once; does nothing where the compiler is there already."""
    if _NAME not in sys.modules:
        stand_in = _StandIn()
        sys.modules[_NAME] = stand_in
        torch._dynamo = stand_in
