"""Imports torch's compiler when a program compiles, not when it makes an optimiser.

Making an optimiser runs ``import torch._dynamo``, for two functions: `disable` and `graph_break`. That import, which also
imports sympy, takes more CPU than torch itself (4.6 s against 3.1 s, measured), in every agent. Without a compiler both
functions have nothing to do, so a stand-in provides them. Any other attribute, which `torch.compile` for example needs, loads
the real module; functions that the stand-in has returned are then disabled by the real one.
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
_KEPT = "__dynamo_disable"  # attribute in which `torch._compile` keeps the result; a constant, since a class would mangle it


class _StandIn(ModuleType):
    """Stands for `torch._dynamo` in ``sys.modules`` until the real one is needed."""

    def __init__(self) -> None:
        super().__init__(_NAME, __doc__)
        self._lock = threading.RLock()
        self._handed_out: list[tuple[Any, bool]] = []  # (function that must not be compiled, whether its callees neither)

    def graph_break(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing before the real module is loaded, since only the compiler needs it."""
        real = _real()
        if real is not None:
            real.graph_break(*args, **kwargs)

    def disable(self, fn: Any = None, recursive: bool = True, **options: Any) -> Any:
        # Only `torch._compile` passes wrapping=False. It asks for torch's own functions, and keeps the result in an attribute.
        # Other callers may use the result in compiled code later, so they get that of the real module.
        if options != {"wrapping": False} or not callable(fn):
            return self._load().disable(fn, recursive, **options)
        with self._lock:
            real = _real()
            if real is not None:
                return real.disable(fn, recursive, **options)
            self._handed_out.append((fn, recursive))
        return fn

    def __getattr__(self, name: str) -> Any:
        # inspect and warnings read names such as __file__ of every module; only __path__ means an import of a submodule
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
    """Put the stand-in in place, once per process; does nothing if the compiler is imported already."""
    if _NAME not in sys.modules:
        stand_in = _StandIn()
        sys.modules[_NAME] = stand_in
        torch._dynamo = stand_in
