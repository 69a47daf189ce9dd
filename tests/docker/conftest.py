"""One cluster of containers for the tests of a file, on an engine that the same code gets ready that docker/up runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from dockerized.cluster import Cluster
from dockerized.engine import Engine
from dockerized.machine import Machine

from tests.docker.support import nothing_beyond


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
    before = Machine.now()
    engine = Engine.ready(print)
    one = Cluster("mpca-test", engine, tmp_path_factory.mktemp("docker") / "cluster", print)
    try:
        one.down()  # what a test run that was killed has left
        one.up()
        yield one
    finally:
        one.down()
        engine.stop(print)
        shutil.rmtree(one.folder, ignore_errors=True)
    nothing_beyond(before)
