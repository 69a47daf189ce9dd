"""Reads JSON that may be damaged or edited: every fault is a ValueError."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

__all__ = ["loads"]


def loads(data: bytes | str) -> Any:
    """The value of a text.

    Raises:
        ValueError: the text is not JSON, is nested too deeply, or has a number outside of JSON (NaN, Infinity, 1e999).

    Example:
        >>> loads('{"error": 0.5}')
        {'error': 0.5}
    """
    try:
        return json.loads(data, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:  # the standard library's reader fails at about a thousand levels
        raise ValueError("nested too deeply") from None


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"not a number of JSON: {word}")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"not a finite number: {text[:40]}")
    return value
