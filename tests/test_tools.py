"""The programs that `make lint` and `.ci/run` hold rules with: here is what breaks them."""

from __future__ import annotations

import importlib.util
import itertools
import re
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.mark.expression import Expression

from tests.support.ways_to_patch import WAYS

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


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_patch_is_read(rule: ModuleType, way: str) -> None:
    assert bool(list(rule.findings(WAYS[way].source))) == WAYS[way].read


def test_no_way_to_patch_escapes_both_the_tool_and_the_watch() -> None:
    assert [name for name, way in WAYS.items() if not way.read and not way.seen] == []


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
    counts = counting.count(_junit(one=False, two=True), _junit(three=False))
    assert counts == {"tests/spark": {"passed": 2, "skipped": 1}, "tests": {"passed": 2}}


def test_a_folder_in_a_folder_is_counted_by_itself(counting: ModuleType) -> None:
    one = _junit(one=False).replace("tests.spark.test_a", "tests.spark.more.test_a.TestOne")
    assert counting.count(one) == {"tests/spark/more": {"passed": 1}, "tests": {"passed": 1}}
    collected = ["tests/spark/more/test_a.py::TestOne::one", "tests/spark/more/test_a.py::TestOne::two"]
    assert "tests/spark/more: 1 of 2 tests ran" in counting.missing(counting.count(one), collected)


def test_a_failed_test_is_told_with_its_last_words(counting: ModuleType) -> None:
    junit = _junit(one=False).replace(
        "/></testsuite>", '><failure message="first words' + 700 * "." + 'last words"/></testcase></testsuite>'
    )
    (said,) = counting.failures(_junit(one=True), junit)
    assert said.startswith("tests.test_b::y: ...")
    assert said.endswith("last words")
    assert "first words" not in said


def test_how_long_a_file_and_the_slowest_modules_took_is_told(counting: ModuleType) -> None:
    case = '<testcase classname="tests.{}" name="{}" time="{}"/>'
    cases = [case.format("test_a", "x", 1.5), case.format("test_a", "y", 2.25), case.format("test_b", "x", 0.5)]
    junit = f'<testsuites><testsuite time="6.5">{"".join(cases)}</testsuite></testsuites>'
    assert counting.seconds(junit) == 6.5
    assert counting.slowest(junit, _junit(one=False))[:2] == [("tests.test_a", 3.75), ("tests.test_b", 0.5)]
    many = "".join(case.format(f"test_{number}", "x", number) for number in range(20))
    slow = counting.slowest(f"<testsuite>{many}</testsuite>")
    assert (len(slow), slow[0], slow[-1]) == (10, ("tests.test_19", 19.0), ("tests.test_10", 10.0))


@pytest.fixture
def two_folders(counting: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "FOLDERS", ("tests", "tests/spark"))


@pytest.mark.usefixtures("two_folders")
def test_a_skipped_test_on_a_real_cluster_and_a_missing_one_are_told(counting: ModuleType) -> None:
    collected = ["tests/spark/test_a.py::one", "tests/spark/test_a.py::two", "tests/test_b.py::y"]
    assert counting.missing(counting.count(_junit(one=False, two=False)), collected) == []
    (skipped,) = counting.missing(counting.count(_junit(one=False, two=True)), collected)
    assert skipped == "tests/spark: 1 skipped; tests on a real cluster must run"
    assert counting.missing(counting.count(_junit(one=False)), collected) == ["tests/spark: 1 of 2 tests ran"]
    collected.append("tests/test_b.py::z")
    assert counting.missing(counting.count(_junit(one=False, two=False)), collected) == ["tests: 1 of 2 tests ran"]


@pytest.mark.usefixtures("two_folders")
def test_a_folder_that_was_taken_away_is_told_though_pytest_collects_nothing_of_it(counting: ModuleType) -> None:
    assert counting.missing(counting.count(_junit()), ["tests/test_b.py::y"]) == [
        "tests/spark: no tests; it is in the list of tools/count_tests.py"
    ]


@pytest.mark.usefixtures("two_folders")
def test_a_folder_that_is_not_in_the_list_is_told(counting: ModuleType) -> None:
    junit = _junit(one=False).replace('classname="tests.test_b"', 'classname="tests.more.test_b"')
    assert "tests/more: not in the list of tools/count_tests.py" in counting.missing(counting.count(junit), [])


def test_the_list_is_that_of_this_checkout(counting: ModuleType) -> None:
    """Whoever removes a folder has to say so here too."""
    folders = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}
    assert sorted(folders) == list(counting.FOLDERS)


def _one_takes_it(file: Path, names: str, count: int, *marks: str) -> None:
    """Of the expressions that the file gives these names, each test has one that takes it, whatever it is marked with."""
    lines = re.findall(rf'^(?:{names}) ?:?= ?"?([^"\n]+)"?$', file.read_text(encoding="utf-8"), re.MULTILINE)
    expressions = [Expression.compile(line) for line in lines]
    assert len(expressions) == count
    for of in (set(some) for length in range(len(marks) + 1) for some in itertools.combinations(marks, length)):
        assert sum(one.evaluate(lambda name, of=of, **_: name in of) for one in expressions) == 1, of


def test_each_test_is_of_one_of_four_targets_whatever_it_is_marked_with() -> None:
    _one_takes_it(
        ROOT / "Makefile", "LOCAL|HADOOP|DOCKER|BROWSER", 4, "spark", "hadoop", "docker", "root", "slow", "browser", "long"
    )


def test_each_test_is_of_one_of_the_groups_of_ci_whatever_it_is_marked_with() -> None:
    groups = "alone|executors|hadoop|others|quiet"
    _one_takes_it(ROOT / ".ci" / "run", groups, 5, "spark", "hadoop", "docker", "root", "slow", "browser", "quiet", "long")
