"""Whether a test has the same name in every process: pytest-xdist refuses to share out tests that have not.

An address differs from process to process, and so does the order in which a set shows its elements.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

__all__ = ["changing"]

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{8,}")
_BRACES = re.compile(r"\{[^{}]*\}")


def changing(names: Iterable[str]) -> list[str]:
    """Those names that another process would not give."""
    return [name for name in names if _ADDRESS.search(name) or any(map(_is_set, _BRACES.findall(name)))]


def _is_set(text: str) -> bool:
    """``{'a', 1}`` and ``{<State.A: 1>}``; not the place of a name in a text, as in ``{folder}/run``."""
    if text.startswith("{<"):
        return True
    try:
        found = ast.parse(text, mode="eval").body
    except SyntaxError:
        return False
    return isinstance(found, ast.Set) and not all(isinstance(one, ast.Name) for one in found.elts)
