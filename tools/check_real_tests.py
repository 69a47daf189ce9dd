"""Holds a rule of this project: tests on real clusters replace nothing of mpca and import no mocks.

Run by `make lint`. A fault enters such a test through a port (a signal, a stopped process, a damaged link). This tool reads the
source: what is imported, the words by which Python is patched, and what is written to names that came from mpca. What cannot be
seen in the source, ``tests/support/unpatched.py`` sees while the tests run.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["findings", "main"]

REAL = ("tests/spark", "tests/hadoop", "tests/docker", "tests/browser")
#: Modules that such a test has no use for, but to replace something.
_MODULES = {"unittest", "mock", "pytest_mock", "wrapt", "importlib", "imp", "builtins", "forbiddenfruit"}
#: Words, wherever they stand: as an attribute, as an imported or built-in name, as text (``getattr(patch, "setattr")``).
_WORDS = {
    *("setattr", "delattr", "setitem", "delitem", "__setattr__", "__delattr__", "__setitem__", "__import__", "import_module"),
    *("__dict__", "__code__", "__globals__", "__builtins__", "__bases__", "__closure__"),
    *("get_referrers", "get_referents", "get_objects", "MethodType", "mocker"),
}
#: Built-in functions: a method of that name is another thing.
_BUILT_IN = {"exec", "eval", "vars", "globals", "locals"}
_CHANGES = {
    *("update", "setdefault", "pop", "popitem", "clear", "append", "extend", "insert", "remove", "add", "discard"),
    *("sort", "reverse", "appendleft", "popleft", "register"),
}


def _root(node: ast.AST) -> str:
    """``a`` of ``a.b[0].c``; of what is called, nothing."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred, ast.NamedExpr)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _names(target: ast.AST) -> Iterator[str]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _values(value: ast.AST | None) -> Iterator[ast.AST]:
    """What a name may be bound to by this expression: ``a.b`` and ``c`` of ``(a.b, c)``, ``a`` of ``a(x)``."""
    if isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
        yield value
    elif isinstance(value, ast.Call):
        yield from _values(value.func)
    elif isinstance(value, (ast.Tuple, ast.List, ast.Set)):
        for one in value.elts:
            yield from _values(one)
    elif isinstance(value, (ast.BoolOp, ast.IfExp)):
        for one in value.values if isinstance(value, ast.BoolOp) else (value.body, value.orelse):
            yield from _values(one)
    elif isinstance(value, ast.NamedExpr):
        yield from _values(value.value)


def _bindings(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """(target, what it is bound to) wherever a name can be given to something."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            yield from ((target, node.value) for target in node.targets)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            yield node.target, node.value
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            yield node.target, node.iter
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield node.optional_vars, node.context_expr
        elif isinstance(node, ast.Delete):
            yield from ((target, None) for target in node.targets)


def _imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names under which parts of mpca are imported."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((n.asname or n.name).split(".")[0] for n in node.names if n.name.split(".")[0] == "mpca")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mpca":
            yield from (n.asname or n.name for n in node.names)


def _ours(nodes: list[ast.AST], outside: frozenset[str]) -> frozenset[str]:
    """Names by which this scope knows parts of mpca: imported, or bound to what such a name leads to."""
    ours = outside | set(_imported(nodes))
    bindings = list(_bindings(nodes))
    while True:
        bound = (_names(target) for target, value in bindings if any(_root(one) in ours for one in _values(value)))
        more = ours.union(*bound)
        if more == ours:
            return ours
        ours = more


def _scopes(tree: ast.Module) -> Iterator[list[ast.AST]]:
    """The nodes outside all functions first, then those of each outermost function or method."""
    outside, functions, queue = [], [], list(ast.iter_child_nodes(tree))
    for node in queue:  # grows
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.append(list(ast.walk(node)))
        else:
            outside.append(node)
            queue += ast.iter_child_nodes(node)
    return iter([outside, *functions])


def _imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (f"imports {n.name}" for n in node.names if n.name.split(".")[0] in _MODULES)
    elif isinstance(node, ast.ImportFrom):
        if (node.module or "").split(".")[0] in _MODULES:
            yield f"imports from {node.module}"
        yield from (f"imports {n.name}" for n in node.names if n.name in _WORDS or (node.module, n.name) == ("sys", "modules"))


def _words(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        if node.attr in _WORDS or (node.attr == "modules" and _root(node) == "sys"):
            yield f"says {ast.unparse(node)}"
    elif isinstance(node, ast.Name):
        if node.id in _WORDS | _BUILT_IN:
            yield f"says {node.id}"
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str) and node.value in _WORDS:
            yield f"says {node.value!r}"
    elif isinstance(node, ast.arg) and node.arg in _WORDS:
        yield f"asks for {node.arg}"


def _writes(target: ast.AST, ours: frozenset[str]) -> Iterator[str]:
    """What one target writes into that belongs to mpca."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for one in target.elts:
            yield from _writes(one, ours)
    elif isinstance(target, ast.Starred):
        yield from _writes(target.value, ours)
    elif isinstance(target, (ast.Attribute, ast.Subscript)):
        inside = target.value
        private = isinstance(target, ast.Attribute) and (target.attr.startswith("_") or target.attr == "__class__")
        if _root(target) in ours or isinstance(inside, ast.Call) or (private and _root(target) not in ("self", "cls")):
            yield f"assigns to {ast.unparse(target)}"


def _changed(node: ast.AST, ours: frozenset[str]) -> Iterator[str]:
    """``table.update(...)`` where the table is mpca's."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
        changed = node.func.value
        if isinstance(changed, (ast.Name, ast.Attribute)) and _root(changed) in ours:
            yield f"changes {ast.unparse(changed)}"


def findings(source: str) -> Iterator[tuple[int, str]]:
    """(line, what is wrong) for each breach of the rule in one file."""
    outside: frozenset[str] = frozenset()
    for nodes in _scopes(ast.parse(source)):
        ours = _ours(nodes, outside)
        outside = outside or ours  # the first scope is the module's own
        for node in nodes:
            for what in (*_imports(node), *_words(node), *_changed(node, ours)):
                yield node.lineno, what  # type: ignore[attr-defined]
        for target, _ in _bindings(nodes):
            for what in _writes(target, ours):
                yield target.lineno, what  # type: ignore[attr-defined]


def main(root: Path) -> int:
    bad = [
        f"{path.relative_to(root)}:{line}: {what}; tests on a real cluster replace nothing of mpca"
        for folder in REAL
        for path in sorted((root / folder).rglob("*.py"))
        for line, what in sorted(findings(path.read_text(encoding="utf-8")))
    ]
    print("\n".join(bad) or "tests on real clusters: nothing is mocked or patched")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent))
