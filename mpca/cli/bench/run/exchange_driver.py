"""The driver of `bench exchange`, a process of its own since it runs on a node of its own: ``python -m ... SPEC``.

SPEC is JSON with the fields of `Spec`. The driver prints lines of JSON on stdout: ``{"ready": true}`` when every executor is
there; then it reads ``{"b_s": seconds or null}`` from stdin, and prints one line a case. `figures.py` makes figures of these
lines.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from mpca.cli.bench.figures import SHARDS
from mpca.cli.bench.load import Sampler, rss_bytes
from mpca.cli.bench.run.engine import Case, open_run
from mpca.cli.bench.run.waiting import wait
from mpca.errors import MpcaError
from mpca.spark.run.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SMALL_BYTES", "Spec", "main", "open_session", "say"]

#: A model whose bytes take no time: a cycle then takes only its fixed cost.
SMALL_BYTES = 30 << 10
SMALL_CYCLES = 300
EXECUTORS_S = 240.0
RSS_EVERY_S = 0.1


@dataclass(frozen=True)
class Spec:
    """What the driver is to measure."""

    work_dir: str
    agents: int
    size_bytes: int
    reducer: str
    broadcast: str
    phases: int
    cycles: int  # of the overlapped case
    exchanges: int  # of the blocking case
    master: str = ""  # empty: executors on this machine, over loopback
    address: str = "127.0.0.1"
    secret: str = ""  # file with the daemons' secret
    encrypt: bool = False  # spark.network.crypto.enabled

    def cases(self, deadline_s: float) -> list[Case]:
        """The small case comes first: it warms the JVMs up, and memory is compared with what it leaves."""

        def case(name: str, size: int, shards: int, phases: int, cycles: int) -> Case:
            return Case(name, self.agents, shards, phases, cycles, wait, (size,), self.reducer, self.broadcast, deadline_s)

        return [
            case("small", SMALL_BYTES, SHARDS, self.phases, SMALL_CYCLES),
            case("overlapped", self.size_bytes, SHARDS, self.phases, self.cycles),
            case("blocking", self.size_bytes, 1, 1, self.exchanges),
        ]


@contextmanager
def open_session(spec: Spec) -> Iterator[SparkSession]:
    """A session on the daemons of a network, or on this machine. The block begins when every executor is there."""
    conf = {"spark.network.crypto.enabled": str(spec.encrypt).lower()}
    if spec.secret:
        conf |= {"spark.authenticate": "true", "spark.authenticate.secret": Path(spec.secret).read_text()}
    if spec.master:
        conf |= {
            "spark.master": spec.master,
            "spark.driver.host": spec.address,
            "spark.driver.bindAddress": spec.address,
            "spark.executor.cores": "2",
            "spark.executor.instances": str(spec.agents),
        }
    # A shard of the blocking case is the whole model, and up to four of them lie in an executor.
    memory = max(768 << 20, (600 << 20) + 8 * spec.size_bytes)
    with session(spec.work_dir, executors=spec.agents, executor_memory=memory, conf=conf, name="mpca bench") as spark:
        _wait_for_executors(spark, spec.agents)
        yield spark


def main(spec: Spec) -> None:
    with open_session(spec) as spark:
        say({"ready": True})
        b_s = json.loads(sys.stdin.readline())["b_s"] or 0.0
        pids = [os.getpid(), *(one.pid for one in psutil.Process().children() if one.name() == "java")]
        for case in spec.cases(deadline_s=60.0 + 15 * b_s):
            with Sampler(lambda: [rss_bytes([pid]) for pid in pids], RSS_EVERY_S) as memory_use:
                opened = open_run(spark, case, "eth0" if spec.master else "")
                try:
                    marks = opened.finish()
                finally:
                    opened.cluster.close()
            say(
                {
                    "case": case.name,
                    "marks": [asdict(mark) for mark in marks],
                    "rss_peak": max((parts for _, parts in memory_use.samples), key=sum),  # Python, JVM
                    "rss_end": [rss_bytes([pid]) for pid in pids],
                }
            )


def _wait_for_executors(spark: SparkSession, count: int) -> None:
    deadline = time.monotonic() + EXECUTORS_S
    context = spark.sparkContext._jsc.sc()
    while (there := context.getExecutorMemoryStatus().size() - 1) < count:  # the driver is in it too
        if time.monotonic() > deadline:
            raise MpcaError(f"only {there} of {count} executors started within {EXECUTORS_S:.0f} s")
        time.sleep(0.1)


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")  # stderr is this process's log
    logging.getLogger("mpca").setLevel(logging.INFO)
    main(Spec(**json.loads(sys.argv[1])))
