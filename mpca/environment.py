"""The process's environment, which only this module reads."""

from __future__ import annotations

import os

__all__ = ["child_environment", "environment"]


def environment(name: str, default: str = "") -> str:
    """One variable of the environment, which only this function reads."""
    return os.environ.get(name, default)


def child_environment(**changes: str) -> dict[str, str]:
    """A copy of the environment with changes, for a process that we start."""
    return {**os.environ, **changes}
