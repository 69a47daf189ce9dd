"""A test that leaves a process, a descriptor or a shared-memory file behind fails.

Tests marked `spark`, `hadoop`, `docker` or `browser` share a session, daemons or a browser between them, so for those the same
is asked once, when everything has ended; what a single one of them may leave in Spark is
checked in `tests/spark`.

Of those it is also asked whether they replaced a part of mpca: such a test counts for what really happens, or not at all.

A test whose name differs between processes is refused when it is collected.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

from tests.support.leaks import Held, wait_until_gone
from tests.support.names import changing
from tests.support.unpatched import Watch

# A run under `nohup`, or in the background of a script, would hand down to everything here that SIGHUP or SIGINT is ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# The machine may be busy: how long an example takes says nothing.
hypothesis.settings.register_profile("mpca", deadline=None)
hypothesis.settings.load_profile("mpca")
if "PYTEST_XDIST_WORKER" in os.environ:  # tests beside others: more threads than cores would wait for each other
    import torch

    torch.set_num_threads(1)
_WATCH: pytest.StashKey[Watch] = pytest.StashKey()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """What `models.stacked.one_thread` does, for one test."""
    import torch

    from mpca.models.stacked import one_thread

    threads = torch.get_num_threads()
    one_thread()
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """An error of its file, since pytest-xdist shows those of its processes too."""
    report = yield
    if found := changing(one.nodeid for one in report.result or () if isinstance(one, pytest.Item)):
        why = "other processes give these tests other names, since an address or a set is in them; give ids=[...] by hand:"
        report.outcome, report.result, report.longrepr = "failed", [], "\n".join([why, *found])
    return report


def _on_a_cluster(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(shared) is not None for shared in ("spark", "hadoop", "docker", "browser"))


def _nothing_replaced(item: pytest.Item) -> None:
    changes = item.config.stash[_WATCH].changes()
    assert not changes, f"a test on a real cluster replaces nothing of mpca: {changes}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    if _on_a_cluster(item) and _WATCH not in item.config.stash:
        item.config.stash[_WATCH] = Watch()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Before fixtures are taken down: what they replaced is still there."""
    if not _on_a_cluster(item):
        return (yield)
    with item.config.stash[_WATCH].beside():
        result = yield
    _nothing_replaced(item)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    result = yield
    if _on_a_cluster(item):
        _nothing_replaced(item)
    return result


@pytest.fixture(autouse=True)
def nothing_left_by_the_test(request: pytest.FixtureRequest) -> Iterator[None]:
    if _on_a_cluster(request.node):
        yield
        return
    before = Held.now()
    yield
    left = wait_until_gone(before)
    assert not left, f"left behind by this test: {left}"


@pytest.fixture(autouse=True, scope="session")
def nothing_left_at_the_end() -> Iterator[None]:
    before = Held.now()
    yield
    left = [what for what in wait_until_gone(before, seconds=15.0) if not what.startswith("descriptor")]
    assert not left, f"left behind by these tests: {left}"
