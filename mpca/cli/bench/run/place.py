"""Where the driver of a bench runs: on a node of a `Network`, or on this machine over loopback; and its Spark session there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpca.errors import MpcaError
from mpca.spark.run.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Place", "cluster_jvms", "open_session", "say"]

EXECUTORS_S = 240.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """The node, the number of executors, and the folder for files."""

    work_dir: str
    agents: int
    master: str = ""  # empty: executors on this machine, over loopback
    address: str = "127.0.0.1"
    secret: str = ""  # file with the daemons' secret


def cluster_jvms(work_dir: str) -> dict[str, str]:
    """Settings with which a session there has the collector and the compilers of a cluster's JVMs, not those of small ones."""
    options = f"-XX:-UsePerfData -Djava.io.tmpdir={Path(work_dir).resolve() / 'spark' / 'local'}"
    return {"spark.driver.extraJavaOptions": options, "spark.executor.extraJavaOptions": options}


@contextmanager
def open_session(place: Place, executor_bytes: int, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session on the daemons of a network, or on this machine. The block begins when every executor is there.

    Args:
        place: where.
        executor_bytes: of an executor's heap.
        conf: more Spark settings.
    """
    settings = dict(conf)
    if place.secret:
        settings |= {"spark.authenticate": "true", "spark.authenticate.secret": Path(place.secret).read_text()}
    if place.master:
        settings |= {
            "spark.master": place.master,
            "spark.driver.host": place.address,
            "spark.driver.bindAddress": place.address,
            "spark.executor.cores": "2",
            "spark.executor.instances": str(place.agents),
        }
    opened = session(place.work_dir, executors=place.agents, executor_memory=executor_bytes, conf=settings, name="mpca bench")
    with opened as spark:
        _wait_for_executors(spark, place.agents)
        yield spark


def _wait_for_executors(spark: SparkSession, count: int) -> None:
    deadline = time.monotonic() + EXECUTORS_S
    context = spark.sparkContext._jsc.sc()
    while (there := context.getExecutorMemoryStatus().size() - 1) < count:  # the driver is in it too
        if time.monotonic() > deadline:
            raise MpcaError(f"only {there} of {count} executors started within {EXECUTORS_S:.0f} s")
        time.sleep(0.1)


def say(what: dict[str, Any]) -> None:
    """A line of JSON for the process that started this one."""
    print(json.dumps(what), flush=True)
