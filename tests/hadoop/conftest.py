"""One Hadoop for all tests here, with its own folder and ports; whoever stops one of its daemons starts it again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mpca.cli.dev.hadoop import Hadoop


@pytest.fixture(scope="package")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    """Six daemons, and the environment of this process set so that Spark finds them."""
    cluster = Hadoop(tmp_path_factory.mktemp("hadoop"), print)
    try:
        cluster.up()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in cluster.env().items():
                patch.setenv(name, value)
            yield cluster
    finally:
        cluster.down()


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> str:
    """A path on HDFS that no other test uses."""
    path: Path = request.getfixturevalue("tmp_path")
    return f"/tests/{path.name}"


@pytest.fixture(scope="package")  # not longer: a process has one session, and other folders have their own
def spark(hadoop: Hadoop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Two executors of this machine, whose driver finds the cluster's HDFS."""
    from mpca.spark.run.session import session

    folder = tmp_path_factory.mktemp("session")
    with session(folder, executors=2, executor_memory=512 << 20, driver_memory=700 << 20) as one:
        yield one
