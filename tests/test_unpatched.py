"""The watch over tests on real clusters finds what it is for, however it was done."""

from __future__ import annotations

import builtins
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_executor import wait_until
from tests.support.unpatched import Watch
from tests.support.ways_to_patch import COPY, WAYS

pytestmark = pytest.mark.long

pytest_plugins = ["pytester"]
PLANTED = "planted_for_the_watch"


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Over a package of its own, which is forgotten afterwards, as are replaced functions of others."""
    folder = tmp_path / PLANTED / "driver"
    folder.mkdir(parents=True)
    for package in (folder.parent, folder):
        (package / "__init__.py").touch()
    (folder / "cycle.py").write_text(COPY)
    monkeypatch.syspath_prepend(tmp_path)
    __import__(f"{PLANTED}.driver.cycle")
    kept = (builtins.open, time.sleep)
    yield Watch(PLANTED)
    builtins.open, time.sleep = kept
    for name in [name for name in sys.modules if name.startswith(PLANTED)]:
        del sys.modules[name]


def do(way: str, monkeypatch: pytest.MonkeyPatch) -> object:
    names: dict = {"__name__": "tests.a_test"}
    exec(WAYS[way].source.replace("mpca", PLANTED), names)
    return names["way"](monkeypatch)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_patch_is_seen(watch: Watch, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    assert watch.changes() == []
    kept = do(way, monkeypatch)
    assert bool(watch.changes()) == WAYS[way].seen
    del kept


def test_what_a_library_replaces_when_it_is_imported_is_no_stand_in(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy

    assert watch.changes() == []
    monkeypatch.setattr(time, "sleep", numpy.average)
    assert watch.changes() == []
    monkeypatch.setattr(time, "sleep", time.monotonic)
    assert watch.changes() == ["time.sleep was replaced"]


def test_what_is_undone_before_the_end_was_seen_meanwhile(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    with watch.beside(), monkeypatch.context() as patch:
        do("monkeypatch.setattr", patch)
        wait_until(lambda: watch._found, "a look at it", 10.0)
    assert watch.changes() == [f"{PLANTED}.driver.cycle.LIMIT was replaced"]
    assert watch.changes() == [], "it was put back"


def test_a_module_that_comes_later_is_watched_and_a_stand_in_in_it_is_seen(watch: Watch, tmp_path: Path) -> None:
    more = tmp_path / PLANTED / "driver" / "more.py"
    more.write_text("import functools\nVALUE = 1\n_kept = None\n\ndef set(value):\n    global _kept\n    _kept = value\n")
    module = __import__(f"{PLANTED}.driver.more", fromlist=["more"])
    module.set(3)
    assert watch.changes() == [], "what a module rebinds itself is its own affair"
    module.VALUE = 2
    assert watch.changes() == [f"{PLANTED}.driver.more.VALUE was replaced"]
    more.with_name("late.py").write_text("def f(): pass\n")
    late = __import__(f"{PLANTED}.driver.late", fromlist=["late"])
    late.f = wait_until  # before it was looked at
    assert f"{PLANTED}.driver.late.f comes from tests.support.fake_executor" in watch.changes()


def test_a_module_that_is_being_imported_is_not_looked_at_yet(
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = types.ModuleType("hook_of_the_watchs_test")
    hook.look = watch.look
    monkeypatch.setitem(sys.modules, hook.__name__, hook)
    half = f"FIRST = 1\nimport {hook.__name__}\n{hook.__name__}.look()\nSECOND = 2\n"
    (tmp_path / PLANTED / "half.py").write_text(half)
    module = __import__(f"{PLANTED}.half", fromlist=["half"])
    assert watch.changes() == []
    module.SECOND = 3
    assert watch.changes() == [f"{PLANTED}.half.SECOND was replaced"]


def test_a_test_on_a_cluster_that_replaces_something_fails_and_another_does_not(pytester: pytest.Pytester) -> None:
    """The hooks of this folder's conftest, in a run of pytest of its own."""
    pytester.makeconftest("from tests.conftest import *  # noqa: F403")
    pytester.makeini("[pytest]\nmarkers = spark\n  hadoop\n  docker\n")
    pytester.makepyfile(
        """
        import time

        import pytest

        from mpca import units

        @pytest.mark.spark
        def test_undone_at_its_end(monkeypatch):
            monkeypatch.setattr(units, "parse_size", None)

        @pytest.mark.spark
        def test_undone_at_once():
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(units, "parse_size", None)
                time.sleep(2)  # longer than EVERY_S: the watch looks meanwhile

        @pytest.fixture
        def patched():
            kept, units.parse_size = units.parse_size, None
            yield
            units.parse_size = kept

        @pytest.mark.hadoop
        def test_by_a_fixture(patched):
            pass

        @pytest.mark.docker
        def test_nothing():
            pass

        def test_without_a_cluster(monkeypatch):
            monkeypatch.setattr(units, "parse_size", None)
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=3, passed=2)
    result.stdout.fnmatch_lines(["*mpca.units.parse_size was replaced*"] * 3)
