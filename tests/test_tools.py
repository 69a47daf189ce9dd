"""The programs that `make lint` and `.ci/run` hold rules with: here is what breaks them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rule() -> ModuleType:
    return _tool("check_real_tests")


@pytest.fixture(scope="module")
def counting() -> ModuleType:
    return _tool("count_tests")


@pytest.mark.parametrize(
    "source",
    [
        "import unittest.mock",
        "from unittest import mock",
        "from unittest.mock import patch",
        "def test(monkeypatch):\n    monkeypatch.setattr('mpca.driver.cycle.Cycle', None)",
        "import mpca.driver.cycle\nmpca.driver.cycle.LIMIT = 3",
        "from mpca.driver import cycle\nsetattr(cycle, 'LIMIT', 3)",
        "from mpca.driver import cycle\ncycle.LIMIT += 3",
    ],
)
def test_a_mock_or_a_patch_of_mpca_is_found(rule: ModuleType, source: str) -> None:
    assert len(list(rule.findings(source))) == 1


def test_environment_variables_and_faults_by_signal_are_allowed(rule: ModuleType) -> None:
    source = "import os\nfrom mpca.api import Job\ndef test(monkeypatch):\n    monkeypatch.setenv('A', 'b')\n    os.kill(1, 9)"
    assert list(rule.findings(source)) == []


def test_the_tests_of_this_checkout_keep_the_rule(rule: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert rule.main(ROOT) == 0, capsys.readouterr().out


def _junit(**skipped: bool) -> str:
    cases = "".join(
        f'<testcase classname="tests.spark.test_a" name="{name}">{"<skipped/>" if skip else ""}</testcase>'
        for name, skip in skipped.items()
    )
    return f'<testsuites><testsuite>{cases}<testcase classname="tests.test_b" name="y"/></testsuite></testsuites>'


def test_tests_are_counted_by_folder(counting: ModuleType) -> None:
    counts = counting.count(_junit(one=False, two=True))
    assert counts == {"tests/spark": {"passed": 1, "skipped": 1}, "tests": {"passed": 1}}


def test_a_skipped_and_a_missing_test_on_a_real_cluster_are_told(counting: ModuleType) -> None:
    collected = ["tests/spark/test_a.py::one", "tests/spark/test_a.py::two", "tests/test_b.py::y"]
    assert counting.missing(counting.count(_junit(one=False, two=False)), collected) == []
    (skipped,) = counting.missing(counting.count(_junit(one=False, two=True)), collected)
    assert skipped == "tests/spark: 1 skipped; tests on a real cluster must run"
    assert counting.missing(counting.count(_junit(one=False)), collected) == ["tests/spark: 1 of 2 tests ran"]
