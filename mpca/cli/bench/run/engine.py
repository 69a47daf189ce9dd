"""One run of the engine for a bench: the real runner, machine and cluster, without evaluator and folder.

When the record of a cycle is written, a bench also reads the bytes of the driver's link, the idle CPU and the CPU seconds of
the run's processes. So every figure is a difference between two cycles, without the start and the end of the run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mpca.cli.bench.load import Processes, Ticks, cpu_ticks, interface_bytes
from mpca.clock import SystemClock
from mpca.driver.agent_table import AgentTable
from mpca.driver.cluster import AgentSpec, Cluster
from mpca.driver.coding import Coding
from mpca.driver.cycle import CycleMachine
from mpca.driver.objectives import Goals
from mpca.driver.run_shape import RunShape
from mpca.driver.runner import Runner
from mpca.driver.states import AgentState, RunState
from mpca.errors import MpcaError
from mpca.methods import MPCA
from mpca.records import Record, Sink, to_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Case", "Mark", "Marks", "Opened", "open_run"]

START_TIMEOUT_S = 300.0
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Case:
    """One run: what is exchanged, and how."""

    name: str
    agents: int
    shards: int
    phases: int
    cycles: int
    function: Callable[..., Any]  # what every agent calls
    args: tuple[Any, ...] = ()
    reducer: str = "ranges"
    broadcast: str = "relay"
    deadline_s: float = 60.0
    pull: bool = False  # whether agents are pulled: waiting ones need not be
    per_executor: int = 1  # agents in one executor
    preload: bool = True  # as cluster.preload
    codec: str = "none"  # as cluster.codec
    program: str = ""  # module that agents run in place of production's, such as `light_agent`
    conf: dict[str, Any] = field(default_factory=dict)  # what its Start carries

    def method(self) -> MPCA:
        method = MPCA(shards=self.shards, phases=self.phases)
        return method if self.pull else replace(method, alpha=0.0, alpha_start=0.0)


@dataclass(frozen=True)
class Mark:
    """The moment at which a cycle's record was written."""

    cycle: int
    at: float  # monotonic seconds
    received: int  # bytes of the driver's link
    sent: int
    ticks: Ticks
    cpu_s: dict[str, list[float]]  # of every process so far, by role: `Processes.cpu_s`
    fields: dict[str, Any]  # of the cycle's record; stages in seconds since the run began


@dataclass
class Marks:
    """A sink of records that keeps a mark of every cycle, and passes records on to another sink if there is one."""

    interface: str
    application: str  # id of the session
    beyond: Sink | None = None
    marks: list[Mark] = field(default_factory=list)
    _processes: Processes | None = None  # known from the first cycle on: then every agent is there

    def write(self, record: Record) -> None:
        if self.beyond is not None:
            self.beyond.write(record)
        fields = to_json(record)
        if fields["kind"] == "cycle":
            if self._processes is None:
                self._processes = Processes(self.application)
            received, sent = interface_bytes(self.interface)
            cpu_s = self._processes.cpu_s()
            self.marks.append(Mark(fields["cycle"], time.monotonic(), received, sent, cpu_ticks(), cpu_s, fields))

    def close(self) -> None:
        pass


@dataclass
class Opened:
    """A run that can be stepped; `finish` runs it to its end."""

    runner: Runner
    cluster: Cluster
    marks: Marks
    table: AgentTable

    def finish(self) -> list[Mark]:
        """Run it to its end.

        Raises:
            MpcaError: it failed, or an agent was lost or late: a figure needs all agents.
        """
        machine = self.runner.machine
        while machine.ended is None:
            self.runner.once()
            if machine.state == RunState.PAUSED:
                missing = [one for one in self.table.agents if one.state != AgentState.ACTIVE]
                why = "; ".join(f"agent {one.index} is {one.state}: {one.lost or one.why}" for one in missing)
                self.runner.stop("failed", f"an agent was lost or late: {why}")
        end = machine.ended
        if end.status == "failed":
            raise MpcaError(f"bench run failed: {end.reason}")
        return self.marks.marks


def open_run(spark: SparkSession, case: Case, interface: str = "eth0", records: Sink | None = None) -> Opened:
    """Put a run together on a session; the caller closes its cluster.

    Args:
        spark: a session that has our jar and plug-in.
        case: what is run.
        interface: whose bytes count as the driver's.
        records: where records go as well.
    """
    from mpca.api.shipping import ship
    from mpca.spark.run.cluster import AGENT_COMMAND, SparkCluster

    clock, method = SystemClock(), case.method()
    shape = RunShape.of(
        method,
        run=f"bench-{case.name}-{int(clock.wall())}",
        term=0,
        min_agents=case.agents,
        deadline_s=case.deadline_s,
        start_timeout_s=START_TIMEOUT_S,
        goals=Goals(max_cycles=case.cycles),
    )
    start = {
        "agents": case.agents,
        "run": shape.run,
        "seed": 0,
        "shards": method.shards,
        "layer_aligned": False,
        "method": method.for_agents(),
        "task": "train",
        "payload": ship(case.function, case.args, {}),
        "device": "cpu",
        "threads": 1,
        "conf": case.conf,
    }
    coding = None if case.codec == "none" else Coding(case.codec, method.agent_side.how, shape.term)
    cluster = SparkCluster(
        spark,
        shape.run,
        reducer=case.reducer,
        broadcast=case.broadcast,
        coding=coding,
        agent_command=("-m", case.program) if case.program else AGENT_COMMAND,
    )
    table = AgentTable(case.agents, case.per_executor)
    marks = Marks(interface, spark.sparkContext.applicationId, records)
    runner = Runner(
        CycleMachine(shape, table, clock.now()),
        cluster,
        method,
        AgentSpec(python=sys.executable, env=_ONE_THREAD, start=start, preload=case.preload),
        marks,
        clock,
        on_output=lambda agent, line: print(f"[agent {agent}] {line}", file=sys.stderr),
    )
    return Opened(runner, cluster, marks, table)
