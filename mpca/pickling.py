"""Packing of functions by cloudpickle, with the names of the files that they are of."""

from __future__ import annotations

import io
from types import CodeType
from typing import Any

import cloudpickle

__all__ = ["dumps"]


def _code(code: CodeType) -> tuple[Any, ...]:
    made, values = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return made, tuple(code.co_filename if one == "<dynamic-code>" else one for one in values)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # the library has no types
    """cloudpickle 3.1.3 writes "<dynamic-code>" for the file of each function, and a traceback of it then names no file."""

    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child({CodeType: _code})


def dumps(value: Any) -> bytes:
    """As ``cloudpickle.dumps``; a function's tracebacks name its file elsewhere too.

    Raises:
        Exception: the value cannot be packed; of whatever kind its objects raise.
    """
    with io.BytesIO() as file:
        _Pickler(file).dump(value)
        return file.getvalue()
