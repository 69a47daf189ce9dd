"""Checks values that are read back from a file, which somebody may have edited, against the field types of a dataclass.

Settings are checked by `mpca.checks`, which converts them; nothing is converted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

__all__ = ["fits", "misfit"]


def misfit(cls: type, values: Mapping[str, Any]) -> str | None:
    """The first field of `cls` whose value has another type than the annotation; None when there is none.

    Example:
        >>> from mpca.records.kinds import EndRecord
        >>> misfit(EndRecord, {"t": 1, "status": ["reached"], "reason": ""})
        "status=['reached']"
    """
    hints = _hints(cls)
    for name, value in values.items():
        if name in hints and not fits(value, hints[name]):
            return f"{name}={value!r}"[:100]
    return None


def fits(value: object, hint: Any) -> bool:
    """Whether a value has the type of an annotation. An int also counts as a float; a bool does not count as a number."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in inner)
    if origin is dict:
        return isinstance(value, dict) and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    if origin is list:
        return isinstance(value, list) and all(fits(one, inner[0]) for one in value)
    if hint in (int, float):
        return type(value) is int or (hint is float and type(value) is float)
    return isinstance(value, NoneType if hint is None else hint)


@lru_cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)
