"""A run whose machines disagree about the time of day: ``python -m tests.spark.skewed WORK_DIR LIBRARY CLOCKS STEPS``.

LIBRARY is libfaketime's. CLOCKS is JSON, ``{"driver": "-45", "executors": "+600"}``: how far the wall clocks of the driver's
JVM, and those of the executors and their agents, are off. STEPS, ``{"4": {"driver": "+30"}}``, is where they are set to when
a cycle was written. Prints one JSON object: how the run ended and what its ledger says.

This process itself keeps its clock: under Debian's libfaketime (0.9.10) Python's ``time.sleep`` fails where the monotonic
clock is left alone, as a wrong wall clock leaves it. The driver's Python under a wrong clock is the simulator's.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mpca.agent.returned import unpack
from mpca.cli.bench.run.engine import Case, open_run
from mpca.records import Record, to_json
from mpca.spark.run.session import session

MIB = 1 << 20
CYCLES = 112
#: Long enough for a busy machine, and shorter than any skew that is tried.
DEADLINE_S = 20.0


def wait() -> list[float]:
    """Exchange until the run ends; the wall clock of every step, as this process believes it."""
    import mpca
    from mpca.models.bench import Weights
    from mpca.models.training import create_optimizer

    model = Weights(MIB)
    optimizer = create_optimizer(model, "sgd", lr=0.0)
    mpca.attach(model, optimizer)
    steps = []
    while not mpca.stopping():
        select.select([], [], [], 0.05)
        optimizer.step()
        steps.append(time.time())
    return steps


class Clocks:
    """A file for each side, which libfaketime reads again every second. A context manager; the processes begin within it."""

    def __init__(self, folder: Path, library: str, offsets: dict[str, str]) -> None:
        self._folder = folder
        self.set(offsets)
        faked = {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": self.file("driver"),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # its workaround of waits makes a JVM four times slower, and is not needed
        }
        # libfaketime's first process of a tree makes two files in /dev/shm, which are removed when that one ends in order. Not
        # a JVM, then, which may be killed, but one that ends in order whoever is: at the end of its stdin.
        self._holder = subprocess.Popen(
            ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env={**os.environ, **faked}
        )
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.write(b".")
        assert self._holder.stdout.read(1) == b".", "it has begun, so the files are there"
        # for the children of this process; what it loads itself was settled when it began
        os.environ |= faked | {"FAKETIME_SHARED": " ".join(f"/faketime_{kind}_{self._holder.pid}" for kind in ("sem", "shm"))}

    def __enter__(self) -> Clocks:
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.communicate()

    def file(self, side: str) -> str:
        return str(self._folder / side)

    def set(self, offsets: dict[str, str]) -> None:
        for side, offset in offsets.items():
            Path(self.file(side)).write_text(offset + "\n", encoding="ascii")


class Ledger:
    """Keeps the records, and makes the steps that are due."""

    def __init__(self, clocks: Clocks, steps: dict[str, dict[str, str]]) -> None:
        self.cycles: list[dict[str, Any]] = []
        self.made = 0
        self._clocks, self._steps = clocks, steps

    def write(self, record: Record) -> None:
        fields = to_json(record)
        if fields["kind"] == "cycle":
            self.cycles.append(fields)
            due = self._steps.pop(str(fields["cycle"]), {})
            self._clocks.set(due)
            self.made += len(due)

    def close(self) -> None:
        pass


def main(work_dir: str, library: str, offsets: str, steps: str) -> None:
    folder = Path(work_dir)
    (home := folder / "session").mkdir()
    with Clocks(folder, library, json.loads(offsets)) as clocks:
        run(home, clocks, json.loads(steps))


def run(home: Path, clocks: Clocks, steps: dict[str, dict[str, str]]) -> None:
    conf = {"spark.executorEnv.FAKETIME_TIMESTAMP_FILE": clocks.file("executors")}
    with session(home, executors=2, executor_memory=700 * MIB, driver_memory=700 * MIB, conf=conf) as spark:
        ledger = Ledger(clocks, steps)
        opened = open_run(spark, Case("skewed", 2, 3, 3, CYCLES, wait, deadline_s=DEADLINE_S), "lo", ledger)
        began, machine = time.monotonic(), opened.runner.machine
        try:
            while machine.ended is None:
                opened.runner.once()
            took = time.monotonic() - began
        finally:
            opened.cluster.close()
        # what the driver's JVM believes: whether its clock was really off
        off = spark.sparkContext._jvm.java.lang.System.currentTimeMillis() / 1000 - time.time()
        steps_of = {agent: unpack(returns) for agent, returns in opened.runner.returns.items()}
        said = {"status": machine.ended.status, "reason": machine.ended.reason, "seconds": took, "made": ledger.made}
        agents_off = {agent: walls[-1] - time.time() for agent, walls in steps_of.items() if walls}
        print(json.dumps({**said, "driver_off": off, "agents_off": agents_off, "cycles": ledger.cycles}))


if __name__ == "__main__":
    main(*sys.argv[1:])
