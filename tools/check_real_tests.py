"""Holds a rule of this project: tests on real clusters replace nothing of mpca and import no mocks.

Run by `make lint`. A fault enters such a test through a port (a signal, a stopped process, a shaped link).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["findings", "main"]

REAL = ("tests/spark", "tests/hadoop", "tests/docker")
_MOCKS = ("unittest.mock", "mock")
_PATCHERS = {"setattr", "delattr", "patch"}


def _dotted(node: ast.AST) -> str:
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""


def findings(source: str) -> Iterator[tuple[int, str]]:
    """(line, what is wrong) for each breach of the rule in one file."""
    tree = ast.parse(source)
    ours: set[str] = set()  # names by which this file knows parts of mpca
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name in _MOCKS:
                    yield node.lineno, f"imports {name.name}"
                if name.name.split(".")[0] == "mpca":
                    ours.add((name.asname or name.name).split(".")[0])
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module in _MOCKS or (module == "unittest" and any(n.name == "mock" for n in node.names)):
                yield node.lineno, f"imports from {module}"
            if module.split(".")[0] == "mpca":
                ours.update(n.asname or n.name for n in node.names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = _dotted(node.func)
            if called.startswith("monkeypatch.") and called.split(".")[1] in _PATCHERS:
                yield node.lineno, f"calls {called}"
            elif called in ("setattr", "delattr") and node.args and _dotted(node.args[0]).split(".")[0] in ours:
                yield node.lineno, f"calls {called} on {_dotted(node.args[0])}"
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Attribute) and _dotted(target).split(".")[0] in ours:
                    yield node.lineno, f"assigns to {_dotted(target)}"


def main(root: Path) -> int:
    bad = [
        f"{path.relative_to(root)}:{line}: {what}; tests on a real cluster replace nothing of mpca"
        for folder in REAL
        for path in sorted((root / folder).rglob("*.py"))
        for line, what in findings(path.read_text(encoding="utf-8"))
    ]
    print("\n".join(bad) or "tests on real clusters: nothing is mocked or patched")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent))
