"""The public surface: `mpca.__all__` is what can be had, cheaply, and what editors and type checkers see."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mpca

ROOT = Path(__file__).resolve().parent.parent


def test_every_public_name_can_be_had() -> None:
    for name in mpca.__all__:
        assert getattr(mpca, name) is not None, name
    assert set(mpca.__all__) <= set(dir(mpca))


def test_every_method_that_a_configuration_can_name_is_public() -> None:
    from mpca.methods import METHODS

    assert {cls.__name__ for cls in METHODS.values()} <= set(mpca.__all__)


def test_the_version_is_that_of_the_project() -> None:
    assert f'version = "{mpca.__version__}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"<version>{mpca.__version__}</version>" in (ROOT / "jvm" / "pom.xml").read_text(encoding="utf-8")
    assert f"## {mpca.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()


def test_importing_mpca_imports_neither_torch_nor_spark() -> None:
    program = "import sys, mpca\nbad = {'torch', 'pyspark', 'numpy'} & set(sys.modules)\nassert not bad, bad"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_type_checkers_see_every_public_name_where_it_is_loaded_from() -> None:
    tree = ast.parse(Path(mpca.__file__).read_text(encoding="utf-8"))
    (seen,) = (node.body for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = [node for node in seen if isinstance(node, ast.ImportFrom)]
    assert {alias.name: node.module for node in imports for alias in node.names} == mpca._HOMES
    assert {*mpca._HOMES, "__version__"} == set(mpca.__all__)


def test_alone_a_program_is_the_only_agent() -> None:
    assert mpca.rank() == 0
    assert mpca.world_size() == 1
    assert not mpca.stopping()


def test_a_name_that_is_none_of_ours_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="module 'mpca' has no attribute 'agents'"):
        mpca.agents  # noqa: B018
