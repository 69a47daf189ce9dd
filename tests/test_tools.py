"""The rule about tests on real clusters is held by a program; here are files that break it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def rule() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_real_tests", ROOT / "tools" / "check_real_tests.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
