"""Rows of packages import only from lower rows, and some libraries are imported in few places (ARCHITECTURE.md, part 2)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "mpca"

#: Row of each top-level module or package. The same row: only what is listed in SIDEWAYS.
ROWS = {
    "errors": 0,
    "extras": 0,
    "formats": 0,
    "kerberos": 0,
    "units": 0,
    "clock": 0,
    "pickling": 0,
    "private": 0,
    "redaction": 0,
    "checks": 0,
    "config": 0,
    "environment": 0,
    "streams": 0,
    "timeouts": 0,
    "strict_json": 0,
    "algorithm": 1,
    "methods": 2,
    "wire": 2,
    "records": 2,
    "shm": 3,
    "storage": 3,
    "data": 3,
    "models": 3,
    "agent": 4,
    "driver": 4,
    "spark": 5,
    "sim": 5,
    "track": 5,
    "lightning": 5,
    "transformers": 5,
    "api": 6,
    "report": 6,
    "cli": 7,
    "ml": 7,
}
#: Row 0 is one layer of plain modules; elsewhere a package of a row imports none beside it, but for these pairs.
SIDEWAYS = {0}
PAIRS = {
    ("api", "report"),  # every end of a run draws its report
    ("data", "storage"),  # ingested data sets lie in stores
}
ONLY_IN = {
    "pyspark": {"spark", "ml"},
    "py4j": {"spark"},
    "torch": {"agent", "models", "data", "ml"},
    **{name: {"track"} for name in ("mlflow", "tensorboard", "wandb")},
    **{name: {name} for name in ("lightning", "transformers")},
}
#: What `mpca bench peers` compares mpca with is torch's and pyspark's own. Each file is a process of its own.
PEERS = {"cli/bench/run/peers_driver.py": "pyspark", "cli/bench/run/peers_train.py": "torch"}
#: Doors of the package: what `import mpca` gives, and what starts processes.
DOORS = {"__init__", "__main__"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def owner(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every absolute name that a file imports, wherever in it, but for type checking alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            assert node.module is not None
            if node.module == "mpca":
                yield from ((f"mpca.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield node.module, node.lineno


def offences(path: Path) -> Iterator[str]:
    me = owner(path)
    for name, line in imports(path):
        top, *rest = name.split(".")
        if top == "mpca" and rest and me not in DOORS:
            other = rest[0]
            if other == me or other not in ROWS:  # a name of mpca/__init__.py: `from mpca import __version__`
                continue
            lower = ROWS[other] < ROWS[me] or (ROWS[other] == ROWS[me] and ROWS[me] in SIDEWAYS)
            if not lower and (me, other) not in PAIRS:
                yield f"{path.relative_to(PACKAGE.parent)}:{line}: {me} (row {ROWS[me]}) imports {other} (row {ROWS[other]})"
        if top in ONLY_IN and me not in ONLY_IN[top] and PEERS.get(str(path.relative_to(PACKAGE))) != top:
            yield f"{path.relative_to(PACKAGE.parent)}:{line}: {top} is imported only in {', '.join(sorted(ONLY_IN[top]))}"


def test_every_module_has_a_row() -> None:
    assert {owner(path) for path in modules()} - DOORS <= set(ROWS)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    assert not list(offences(path))


def test_an_upward_import_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mpca" / "algorithm"
    folder.mkdir(parents=True)
    file = folder / "x.py"
    file.write_text("from mpca.driver import cycle\ndef f():\n    import torch.nn\nfrom mpca import spark, errors\n")
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path / "mpca")
    assert [line.split(": ", 1)[1] for line in offences(file)] == [
        "algorithm (row 1) imports driver (row 4)",
        "algorithm (row 1) imports spark (row 5)",
        "torch is imported only in agent, data, ml, models",
    ]
