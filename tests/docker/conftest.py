"""One cluster of containers for the tests of a file, on an engine that the same code gets ready that docker/up runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dockerized.cluster import Cluster
from dockerized.engine import Engine

from tests.docker.support import cluster_up


@pytest.fixture(scope="session", autouse=True)
def _nothing_of_a_killed_session(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Containers outlive an engine that was killed with its machine. With them on it, the next engine would never be ended."""
    folder = Engine.own().folder
    assert folder is not None
    if not any((folder / "data" / "containers").glob("*")):
        return
    engine = Engine.ready(print)
    for name in ("mpca-test", "mpca-test-compose"):
        Cluster(name, engine, tmp_path_factory.mktemp("left"), print).down()
    engine.stop(print)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Six hosts; at the end the machine is as it was."""
    with cluster_up(tmp_path_factory) as one:
        yield one
