"""One process that has imported torch, from which agents of several files are forked, as executors do it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.agent_parent import AgentParent
from tests.support.fake_executor import FakeExecutor


@pytest.fixture(scope="package")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentParent]:
    folder = tmp_path_factory.mktemp("parent")
    with AgentParent(folder, "tests.agent.patient_parent", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1") as parent:
        yield parent


@pytest.fixture
def forked(preloaded: AgentParent, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test whose agents come into being as they do by default."""
    monkeypatch.setattr(FakeExecutor, "parent", preloaded)
