"""The driver of `bench scale`, a process of its own: ``python -m ... SPEC``.

SPEC is JSON with the fields of `Spec`. Real executors are as in any run, but their agents have no torch (`light_agent`). With
those that answer the session has no executor: its only worker has too few cores for one. They come from a JVM of their own
(``org.mpca.bridge.FakeMain``), and register with Spark's scheduler as executors do. The driver, both in Python and in the JVM,
is production's. It prints one line of JSON: a mark of every cycle.
"""

from __future__ import annotations

import json
import logging
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import psutil

from mpca.cli.bench.figures import SHARDS
from mpca.cli.bench.load import JOB_THREADS, Processes, thread_cpu_s
from mpca.cli.bench.run.engine import Case, open_run
from mpca.cli.bench.run.light_agent import PROGRAM
from mpca.cli.bench.run.place import Place, cluster_jvms, open_session, say
from mpca.cli.bench.run.waiting import wait
from mpca.environment import child_environment
from mpca.errors import MpcaError
from mpca.records import Record, to_json
from mpca.spark.run.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Counts", "Fakes", "Spec", "fakes", "main"]

#: No executor fits the only worker, and none of those that answer sends heartbeats.
_CONF = {"spark.executor.cores": "1000", "spark.network.timeout": "24h", "spark.executor.heartbeatInterval": "12h"}
_MODULES = ("--add-opens", "-XX:+IgnoreUnrecognizedVMOptions")
#: A heap as Spark demands it; what is exchanged is small.
_EXECUTOR_BYTES = 512 << 20


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What is measured."""

    work_dir: str
    agents: int
    size_bytes: int
    cycles: int
    real: bool = False  # whether executors are real


class Fakes:
    """The JVM of executors that answer."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def tell(self, what: dict[str, Any]) -> str:
        """Tell it something; the line that it answers.

        Raises:
            MpcaError: it has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        packed = msgpack.packb(what)
        self._process.stdin.write(struct.pack(">i", len(packed)) + packed)
        self._process.stdin.flush()
        line = self._process.stdout.readline().decode()
        if not line:
            raise MpcaError("the JVM of executors that answer has ended; what it said is above")
        return line

    def totals(self) -> dict[str, Any]:
        """Messages, tasks and bytes since its start."""
        return {name: int(number) for name, number in (one.split("=") for one in self.tell({}).split())}


def fakes(stack: ExitStack, spark: SparkSession, jvm: psutil.Process, spec: Spec) -> Fakes:
    """As many executors as agents, all of them ready. They end with `stack`."""
    words = jvm.cmdline()
    options = [one for one in words if one.startswith(_MODULES)]
    options += ["-cp", words[words.index("-cp") + 1]]
    options.append(f"-Dlog4j.configurationFile={Path(spec.work_dir).resolve() / 'spark' / 'conf' / 'log4j2.properties'}")
    process = subprocess.Popen(
        [jvm.exe(), *options, "-Xmx2g", "org.mpca.bridge.FakeMain"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=child_environment(),
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    one = Fakes(process)
    conf = dict(spark.sparkContext.getConf().getAll())
    one.tell({"conf": conf, "executors": spec.agents, "elements": spec.size_bytes // 4, "shards": SHARDS})
    return one


@dataclass
class Counts:
    """A sink of records that notes CPU seconds of the driver, and what `totals` says, when the record of a cycle is written."""

    totals: Callable[[], dict[str, Any]]
    python: psutil.Process
    jvm: psutil.Process
    marks: list[dict[str, Any]] = field(default_factory=list)

    def write(self, record: Record) -> None:
        fields = to_json(record)
        if fields["kind"] == "cycle":
            python, jvm = self.python.cpu_times(), self.jvm.cpu_times()
            self.marks.append(
                {
                    "cycle": fields["cycle"],
                    "at": time.monotonic(),
                    "contributors": len(fields["contributors"]),
                    "python_cpu_s": python.user + python.system,
                    "jvm_cpu_s": jvm.user + jvm.system,
                    "job_cpu_s": thread_cpu_s(self.jvm.pid, JOB_THREADS),
                    **self.totals(),
                }
            )

    def close(self) -> None:
        pass


@contextmanager
def _answering(spec: Spec) -> Iterator[tuple[SparkSession, ExitStack]]:
    """A session that no executor fits, and a stack for those that answer."""
    opened = session(
        spec.work_dir,
        executors=1,
        driver_memory=(2 << 30) + 8 * spec.size_bytes,
        conf=_CONF | cluster_jvms(spec.work_dir),
        name="mpca bench",
    )
    # Spark asks its executors when the session ends: those that answer end after it.
    with ExitStack() as stack, opened as spark:
        yield spark, stack


@contextmanager
def _real(spec: Spec) -> Iterator[tuple[SparkSession, ExitStack]]:
    """A session with all of its executors."""
    place = Place(work_dir=spec.work_dir, agents=spec.agents)
    with ExitStack() as stack, open_session(place, _EXECUTOR_BYTES + 8 * spec.size_bytes, cluster_jvms(spec.work_dir)) as spark:
        yield spark, stack


class _Executors:
    """What real executors and their agents use: known once every agent is there."""

    def __init__(self, application: str) -> None:
        self._application = application
        self._found: Processes | None = None

    def totals(self) -> dict[str, Any]:
        """CPU seconds of all of them together, and the most descriptors that one process of a role has open."""
        self._found = self._found or Processes(self._application)
        used, open_files = self._found.cpu_s(), self._found.descriptors()
        return {
            "executors_cpu_s": sum(used["executor"]),
            "agents_cpu_s": sum(used["agent"]),
            "driver_descriptors": max(open_files["driver_jvm"]),
            "executor_descriptors": max(open_files["executor"]),
        }


def main(spec: Spec) -> None:
    with (_real if spec.real else _answering)(spec) as (spark, stack):
        me = psutil.Process()
        (jvm,) = [one for one in me.children() if one.name() == "java"]
        began, cpu = time.monotonic(), sum(jvm.cpu_times()[:2]) + sum(me.cpu_times()[:2])
        totals = _Executors(spark.sparkContext.applicationId).totals if spec.real else fakes(stack, spark, jvm, spec).totals
        case = Case("scale", spec.agents, SHARDS, 3, spec.cycles, wait, (spec.size_bytes,), deadline_s=120.0)
        if spec.real:
            case = replace(case, program=PROGRAM, conf={"elements": spec.size_bytes // 4})
        counts = Counts(totals, me, jvm)
        run = open_run(spark, case, records=counts)
        try:
            run.finish()
        finally:
            run.cluster.close()
        first = counts.marks[0]
        start = {"s": first["at"] - began, "cpu_s": first["python_cpu_s"] + first["jvm_cpu_s"] - cpu}
        say({"marks": counts.marks, "start": start})


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")  # stderr is this process's log
    logging.getLogger("mpca").setLevel(logging.INFO)
    main(Spec(**json.loads(sys.argv[1])))
