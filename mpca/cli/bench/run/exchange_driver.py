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
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import psutil

from mpca.cli.bench.figures import SHARDS
from mpca.cli.bench.load import Processes, Sampler, rss_bytes
from mpca.cli.bench.run.engine import Case, open_run
from mpca.cli.bench.run.place import Place, cluster_jvms, open_session, say
from mpca.cli.bench.run.waiting import wait

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SMALL_BYTES", "Spec", "main"]

#: A model whose bytes take no time: a cycle then takes only its fixed cost.
SMALL_BYTES = 30 << 10
RSS_EVERY_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Spec(Place):
    """What the driver is to measure."""

    size_bytes: int
    reducer: str
    broadcast: str
    phases: int
    cycles: int  # of the overlapped case
    exchanges: int  # of the blocking case
    small_cycles: int  # of the small case, of which the last ones count
    jobs: int  # of Spark's, that do nothing; a third as many more are made before those that count
    codec: str = "none"
    encrypt: str = ""  # spark.network.crypto.cipher; empty: nothing is encrypted

    def cases(self, deadline_s: float) -> list[Case]:
        """The small case comes first: the JVMs compile meanwhile, and memory is compared with what it leaves."""

        def case(name: str, size: int, shards: int, phases: int, cycles: int) -> Case:
            of = Case(name, self.agents, shards, phases, cycles, wait, (size,), deadline_s=deadline_s)
            return replace(of, reducer=self.reducer, broadcast=self.broadcast, codec=self.codec)

        return [
            case("small", SMALL_BYTES, SHARDS, self.phases, self.small_cycles),
            case("overlapped", self.size_bytes, SHARDS, self.phases, self.cycles),
            case("blocking", self.size_bytes, 1, 1, self.exchanges),
        ]


def main(spec: Spec) -> None:
    # A shard of the blocking case is the whole model, and up to four of them lie in an executor.
    memory = max(768 << 20, (600 << 20) + 8 * spec.size_bytes)
    conf = cluster_jvms(spec.work_dir)
    if spec.encrypt:
        conf |= {"spark.network.crypto.enabled": "true", "spark.network.crypto.cipher": spec.encrypt}
    with open_session(spec, memory, conf) as spark:
        say({"ready": True})
        b_s = json.loads(sys.stdin.readline())["b_s"] or 0.0
        processes = Processes(spark.sparkContext.applicationId)
        pids = [os.getpid(), *(one.pid for one in psutil.Process().children() if one.name() == "java")]
        for case in spec.cases(deadline_s=60.0 + 15 * b_s):
            jvms = [processes.jvms_s()]
            with Sampler(lambda: [rss_bytes([pid]) for pid in pids], RSS_EVERY_S) as memory_use:
                opened = open_run(spark, case, "eth0" if spec.master else "")
                try:
                    marks = opened.finish()
                    held = _jvm_holds(spark)
                finally:
                    opened.cluster.close()
            jvms.append(processes.jvms_s())
            say(
                {
                    "case": case.name,
                    "marks": [asdict(mark) for mark in marks],
                    "jvms": jvms,  # `Processes.jvms_s` at its start and at its end
                    "rss_peak": max((parts for _, parts in memory_use.samples), key=sum),  # Python, JVM
                    "rss_end": [rss_bytes([pid]) for pid in pids],
                    "jvm_held": held,
                }
            )
        say({"case": "jobs", **_empty_jobs(spark, spec.agents, spec.jobs, processes)})


def _jvm_holds(spark: SparkSession) -> int:
    """Bytes that the driver's JVM has in use: its heap behind a collection, and the network's buffers outside."""
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.System.gc()
    heap = jvm.java.lang.Runtime.getRuntime()
    return int(heap.totalMemory() - heap.freeMemory() + jvm.io.netty.util.internal.PlatformDependent.usedDirectMemory())


def _empty_jobs(spark: SparkSession, tasks: int, jobs: int, processes: Processes) -> dict[str, Any]:
    """Wall and CPU seconds of one of Spark's jobs whose tasks do nothing: what a cycle costs at least that is one.

    It comes last, when the JVMs have compiled all that a job does.
    """
    context: Any = spark.sparkContext  # by its Java side: no Python worker has a part in it
    rdd = context._jsc.parallelize(context._jvm.java.util.Collections.nCopies(tasks, 0), tasks)
    for _ in range(jobs // 3):
        rdd.count()
    start, before = time.monotonic(), processes.all_s()
    for _ in range(jobs):
        rdd.count()
    return {"wall_s": (time.monotonic() - start) / jobs, "cpu_s": (processes.all_s() - before) / jobs}


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")  # stderr is this process's log
    logging.getLogger("mpca").setLevel(logging.INFO)
    main(Spec(**json.loads(sys.argv[1])))
