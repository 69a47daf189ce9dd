"""`__all__` of every module is what can be imported from it, sorted, and its examples run."""

from __future__ import annotations

import ast
import doctest
import importlib
from pathlib import Path

import numpy as np
import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "mpca"
#: Programs: what they do, they do when started.
PROGRAMS = {"__main__"}


def names() -> list[str]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if parts[-1] in PROGRAMS or path.stat().st_size == 0:
            continue
        found.append(".".join(parts).removesuffix(".__init__"))
    return found


def source(name: str) -> str:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")


def test_there_are_modules_to_look_at() -> None:
    assert "mpca.algorithm.joint" in names()


@pytest.mark.parametrize("name", names())
def test_exports_are_importable_and_complete(name: str) -> None:
    module = importlib.import_module(name)
    body = ast.parse(source(name)).body
    if all(isinstance(node, (ast.Expr, ast.ImportFrom)) and not getattr(node, "names", None) for node in body):
        return  # a package that is a docstring
    exported = getattr(module, "__all__", None)
    defined = {
        node.name
        for node in body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_")
    }
    if exported is None:
        assert not defined, f"{name} defines {sorted(defined)} and has no __all__"
        return
    missing = [one for one in exported if not hasattr(module, one)]
    assert not missing
    assert len(set(exported)) == len(exported)
    assert defined <= set(exported), f"public but not exported: {sorted(defined - set(exported))}"


@pytest.mark.parametrize("name", [name for name in names() if ">>>" in source(name)])
def test_examples_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), extraglobs={"np": np})
    assert result.attempted > 0
    assert result.failed == 0
