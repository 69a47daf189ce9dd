"""A test that leaves a process, a descriptor or a shared-memory file behind fails.

Tests marked `spark`, `hadoop` or `docker` share a session or daemons between them, so for those the same is asked once, when
everything has ended; what a single one of them may leave in Spark is checked in `tests/spark`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.leaks import Held, wait_until_gone


@pytest.fixture(autouse=True)
def nothing_left_by_the_test(request: pytest.FixtureRequest) -> Iterator[None]:
    if any(request.node.get_closest_marker(shared) is not None for shared in ("spark", "hadoop", "docker")):
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
