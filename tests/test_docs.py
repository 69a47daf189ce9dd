"""README and `docs/` beside the code: texts of errors in docs/what-goes-wrong.md, scripts that are named, an evaluation."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

import mpca

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
ERRORS = re.findall(r"^### `(.*)`$", (ROOT / "docs" / "what-goes-wrong.md").read_text(encoding="utf-8"), re.MULTILINE)
ANY = "..."


def _text(node: ast.AST) -> str:
    """A string of the source; what an f-string fills in is `ANY`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(one) or ANY for one in node.values)
    return ""


def _strings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if text := _text(node):
            yield text


@cache
def _printed() -> list[str]:
    return [one for path in (ROOT / "mpca").rglob("*.py") for one in _strings(path.read_text(encoding="utf-8"))]


def test_headings_are_errors_and_each_stands_once() -> None:
    text = (ROOT / "docs" / "what-goes-wrong.md").read_text(encoding="utf-8")
    assert len(ERRORS) == len(re.findall(r"^### ", text, re.MULTILINE)) == len(set(ERRORS)) > 40


@pytest.mark.parametrize("error", ERRORS)
def test_the_code_says_this(error: str) -> None:
    said = error.split(ANY)
    assert max(map(len, said)) > len("is nul"), "too little is said"
    wanted = re.compile(".*".join(map(re.escape, said)), re.DOTALL)
    assert any(map(wanted.search, _printed())), "docs/what-goes-wrong.md has an error that no string of mpca has"


def test_scripts_and_pages_that_are_named_are_there() -> None:
    pages = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
    named = {
        name for page in pages for name in re.findall(r"(?:examples/\w+\.py|docs/[\w-]+\.md)", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 15
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_security_names_tests_that_are_there() -> None:
    named = re.findall(r"`(tests/[\w/.-]+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_site_is_built_without_a_dead_link(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    # the variable: as in Makefile
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "reference" / "driver" / "index.html").is_file()


def test_the_init_script_for_databricks_installs_what_a_runtime_has_not() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    there = {"numpy", "py4j", "pyspark", "requests", "torch"}  # in a runtime for machine learning, with Python 3.11 or later
    wanted = [one for one in declared if re.split(r"[<>=]", one)[0] not in there and "python_version" not in one]
    (line,) = re.findall(r"^\$pip install ('.*)$", (ROOT / "docs" / "databricks.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert re.findall(r"'(.*?)'", line) == wanted


def test_each_script_is_run_by_make_test_examples() -> None:
    names = {path.stem for path in (ROOT / "examples").glob("*.py")}
    text = (ROOT / "tests" / "spark" / "all_examples.py").read_text(encoding="utf-8")
    (table,) = (one for one in ast.parse(text).body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "LAST")
    assert {ast.literal_eval(key) for key in table.value.keys} == names
    assert len(names) >= 9


def test_the_readmes_evaluation_returns_what_its_goal_looks_at() -> None:
    marked = r"<!-- tests/test_docs.py runs this -->\s*```python\n(.*?)```"
    (code,) = re.findall(marked, (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    names = {"mpca": mpca}
    exec(code, names)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    values = names["evaluate"](net.state_dict())
    target = next(one for one in names["objectives"] if isinstance(one, mpca.Target))
    assert 0 <= values[target.metric] <= 1
    assert mpca.Distributor(objectives=names["objectives"]).conf.objectives.targets == "accuracy >= 0.97"
