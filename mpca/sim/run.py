"""One simulated run: the production driver, agents and methods over a cluster in virtual time. Same seed, same ledger."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

from mpca import methods
from mpca.algorithm.codecs import Codec
from mpca.algorithm.sharding import ShardPlan
from mpca.checks import refused
from mpca.driver.agent_table import AgentTable
from mpca.driver.backups import BackupWriter
from mpca.driver.cluster import AgentSpec
from mpca.driver.events import ReadLocal
from mpca.driver.instructions import End
from mpca.driver.joint import JointModel
from mpca.driver.objectives import DumpModel, Goals
from mpca.driver.run_shape import RunShape
from mpca.driver.runner import Runner
from mpca.driver.server import machine_for
from mpca.driver.states import RunState
from mpca.methods.base import Method
from mpca.records import CycleRecord, ExchangeRecord, Record, to_json
from mpca.sim.agents import Behind
from mpca.sim.check import Checker
from mpca.sim.cluster import SimCluster
from mpca.sim.coded import Coding
from mpca.sim.costs import Costs
from mpca.sim.faults import Fault, FaultScript, random_faults
from mpca.sim.table_costs import TableCosts
from mpca.sim.trainers import TRAINERS, Lesson
from mpca.sim.world import World
from mpca.storage import Backups, BackupState, LocalStore, hidden_folder

__all__ = ["Outcome", "Saved", "Scenario", "simulate", "standard_scenario"]

_FOLDER = "sim://backups"
POLL_S = 0.25  # of virtual time, when nothing happens
READ_LOCAL_EVERY = 7  # cycles between two reads of local tensors, which stand for evaluations and backups
SETTLE_S = 8.0  # after the last fault: by then late agents are asked for again, and replacements contribute


@dataclass(frozen=True)
class Scenario:
    """What is simulated. Everything else follows from the seed. Times are seconds of virtual time."""

    agents: int = 8
    per_executor: int = 1
    executors: int = 0  # at the start; 0: as many as the agents need
    method: Mapping[str, Any] = field(default_factory=lambda: {"name": "mpca", "gamma_ramp": 0, "beta_ramp": 5})
    min_agents: int = 1
    cycles: int = 30
    deadline_s: float = 5.0
    start_timeout_s: float = 60.0
    finish_s: float = 300.0
    parameters: int = 21
    buffers: int = 3
    trainer: str = "integer"  # one of trainers.TRAINERS, or of science.lesson.TASKS
    task: Mapping[str, Any] = field(default_factory=dict)  # fields of science.lesson.Task that differ from the trainer's
    max_time_s: float = 0.0  # of training; 0: without limit
    costs: Costs = field(default_factory=Costs)
    local: bool = False  # the model has a tensor that is not exchanged: it counts an agent's updates
    codec: str = "none"  # or one of `algorithm.codecs.Codec`: how what travels is encoded
    norm_limit: float = 0.0  # off: the whole numbers wrap around, so their distances say nothing
    faults: tuple[Fault, ...] = ()
    behind: tuple[Behind, ...] = ()  # what these agents' train functions do behind their loops; the others do nothing
    skew_s: float = 0.0  # wall clocks of executors are wrong by so much, every other one ahead
    echo_s: float = 0.0  # > 0: the last words of a dead incarnation are heard again after so long
    save_every_s: float = 0.0  # between two backups with agents' own states; 0: there are none
    patience_s: float = 900.0  # of virtual time: the run must have ended

    def to_json(self) -> str:
        """As one line of JSON, which `from_json` reads."""
        return json.dumps({**asdict(self), "costs": self.costs.to_dict()}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Scenario:
        """Read a scenario that `to_json` wrote.

        Raises:
            TypeError: it has a key that no scenario has.
        """
        values = json.loads(text)
        costs = values.get("costs", {})
        values["costs"] = TableCosts.from_dict(costs) if "on" in costs else Costs(**costs)
        values["behind"] = tuple(Behind(**one) for one in values.get("behind", ()))
        values["faults"] = tuple(Fault(**one) for one in values.get("faults", ()))
        return cls(**values)


@dataclass(frozen=True)
class Saved:
    """A backup, and what its agents have saved."""

    state: BackupState
    files: Mapping[str, dict[str, Any]]  # by URL

    def restore(self, joint: JointModel) -> None:
        """Fill the joint model."""
        joint.layout = self.state.layout
        joint.restore(self.state.vector, self.state.trajectory, self.state.exchanges)

    def starts(self) -> dict[int, dict[str, Any]]:
        """`Start.state` of each agent that has saved."""
        folder = f"{_FOLDER}/{hidden_folder(self.state.term, self.state.cycle)}"
        return {int(agent): {"url": f"{folder}/{one['file']}"} for agent, one in self.state.agents.items()}


class _Kept(BackupWriter):
    """Keeps states, and writes nothing."""

    def __init__(self) -> None:
        super().__init__(Backups(LocalStore(os.devnull), ""), "sim", 1, 0, {})
        self.states: list[BackupState] = []

    def submit(self, state: BackupState) -> None:
        self.states.append(state)


@dataclass(frozen=True)
class Outcome:
    """What a simulated run has brought."""

    records: list[Record]
    joint: list[np.ndarray]  # by shard
    end: End
    events: int  # that happened in the world
    cycles: int
    faults: list[Fault]  # that happened
    seconds: float  # of virtual time
    trained_s: float | None  # seconds of training, as the runner counts them
    settled: bool  # the run went on long enough after the last fault to see that all agents contribute again
    local: dict[str, int] = field(default_factory=dict)  # local tensors of the joint model
    saved: list[Saved] = field(default_factory=list)  # in their order

    @property
    def status(self) -> str:
        """How the run ended, as in summary.json."""
        return self.end.status

    @property
    def reason(self) -> str:
        """Why it ended."""
        return self.end.reason

    @property
    def ledger(self) -> list[str]:
        """The lines of `records.jsonl`."""
        return [json.dumps(to_json(one)) for one in self.records]

    @property
    def commits(self) -> list[CycleRecord]:
        """The records of cycles, in order."""
        return [one for one in self.records if isinstance(one, CycleRecord)]

    @property
    def exchanges(self) -> list[ExchangeRecord]:
        """The records of exchanges that agents asked for, in order."""
        return [one for one in self.records if isinstance(one, ExchangeRecord)]


class _Ledger:
    """The recorder of a simulated run."""

    def __init__(self, watch: Checker) -> None:
        self.written: list[Record] = []
        self._watch = watch

    def write(self, record: Record) -> None:
        self.written.append(record)
        self._watch.record(record)

    def close(self) -> None:
        pass


def simulate(
    scenario: Scenario,
    seed: int,
    around: Callable[[SimCluster, World], Any] | None = None,
    lesson: Lesson | None = None,
    begin: Saved | None = None,
) -> Outcome:
    """Run a scenario to its end.

    Args:
        scenario: what is simulated.
        seed: of every chance in it. The same seed gives the same ledger.
        around: may put something between driver and cluster.
        lesson: what is learnt, where `Scenario.trainer` learns from data (`science.lesson.learn`).
        begin: what an earlier run has saved; this one goes on there.

    Returns:
        The ledger, the joint model, and what happened.

    Raises:
        Violation: an invariant does not hold; its message has the seed and the story.
    """
    return _Simulation(scenario, seed, around, lesson, begin).run()


class _Simulation:
    """The parts of a simulated run, and its loop."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        around: Callable[[SimCluster, World], Any] | None,
        lesson: Lesson | None,
        begin: Saved | None,
    ) -> None:
        self._scenario, self._world, self._lesson = scenario, World(seed), lesson
        method = methods.from_dict(scenario.method)
        self._watch = Checker(self._world, seed, method, scenario.agents, scenario.min_agents)
        self._cluster = _cluster(scenario, self._world, method, self._watch, lesson)
        self._script = FaultScript(self._world, self._cluster, scenario.faults)
        self._cluster.reach = self._script.reach
        self._ledger = _Ledger(self._watch)
        table = AgentTable(scenario.agents, scenario.per_executor)
        shape = _shape(scenario, method)
        if begin is not None:
            method = method.cut(len(begin.state.exchanges)) if method.auto_shards else method
            shape = replace(shape, first_cycle=begin.state.cycle, resumed=True, shards=method.shards, auto_shards=False)
            self._cluster.files.update(begin.files)
        self._machine = machine_for(method, shape, table, self._world.clock.now())
        self._port = around(self._cluster, self._world) if around else self._cluster
        spec = AgentSpec("python", {}, {"shards": method.shards})
        self._kept = _Kept() if scenario.save_every_s else None
        self._runner = Runner(
            self._machine,
            self._port,
            method,
            spec,
            self._ledger,
            self._world.clock,
            backups=self._kept,
            restore=None if begin is None else begin.restore,
            states={} if begin is None else begin.starts(),
        )
        self._watch.joint.model = lambda: self._runner.joint
        if scenario.codec != "none":
            if method.asks:
                raise refused("codec", scenario.codec, f"agents of {method.name} ask by themselves, and send no differences")
            self._cluster.coding = self._coding(Codec(scenario.codec), method)
        self._settled: bool | None = None

    def run(self) -> Outcome:
        """The run from its first executor to its end."""
        scenario, cluster, watch = self._scenario, self._cluster, self._watch
        for _ in range(scenario.executors or -(-scenario.agents // scenario.per_executor)):
            cluster.add_executor()
        while self._machine.ended is None:
            self._turn()
        watch.look(cluster)
        watch.ended()
        cluster.close()
        watch.closed(cluster)
        joint, files = self._runner.joint, dict(cluster.files)
        assert joint is not None
        return Outcome(
            self._ledger.written,
            [state.x for state in joint.states if state is not None],
            self._machine.ended,
            self._world.happened,
            self._machine.cycle,
            self._script.fired,
            self._world.now,
            self._runner.trained_s,
            bool(self._settled),
            {name: int.from_bytes(data, "little") for name, (_, _, data) in joint.layout.local.items()},
            [Saved(state, files) for state in (self._kept.states if self._kept is not None else ())],
        )

    def _coding(self, codec: Codec, method: Method) -> Coding:
        watch, full_s, runs = self._watch, self._scenario.costs.download_s, 1
        if self._lesson is not None:
            runs, full_s = self._lesson.runs, self._lesson.costs(self._scenario.costs).download_s
        coding = Coding(codec, runs, method.agent_side.how, lambda: self._runner.joint, watch.broken, self._world.after, full_s)
        watch.coded(coding.rested.pop, coding.rounding)
        return coding

    def _turn(self) -> None:
        """One turn of the driver's loop, and a look at everything."""
        scenario, machine, runner = self._scenario, self._machine, self._runner
        runner.step(self._port.poll(POLL_S))
        self._watch.look(self._cluster)
        if machine.cycle >= scenario.cycles and self._settled is None:  # before the agents were told to stop
            self._settled = _settled(scenario, self._cluster, self._script, self._watch, self._world.now)
        if scenario.local and machine.state == RunState.RUNNING and machine.cycle % READ_LOCAL_EVERY == 0:
            runner.step([ReadLocal()])
        runner.beside()
        if self._lesson is not None:
            self._lesson.look(runner)
        now = self._world.now
        if now > scenario.patience_s:
            self._watch.stuck(f"the run has not ended after {now:.0f} s; state {machine.state}, cycle {machine.cycle}")


def _cluster(scenario: Scenario, world: World, method: Method, watch: Checker, lesson: Lesson | None) -> SimCluster:
    costs, how = scenario.costs, method.agent_side.how
    if lesson is None:
        parameters = scenario.parameters
    else:
        costs, parameters = lesson.costs(costs), lesson.plan(method.shards)[1]

    def make(shards: int, agent: int, incarnation: int) -> Any:
        if lesson is not None:
            return lesson.trainer(lesson.plan(shards)[0], how, agent, incarnation)
        bounds = list(ShardPlan.equal(parameters + scenario.buffers, parameters, shards).bounds)
        return TRAINERS[scenario.trainer](bounds, parameters, how, agent, incarnation)

    cluster = SimCluster(world, costs, method, parameters, scenario.agents, scenario.per_executor, make, watch)
    cluster.echo_s, cluster.skew_s, cluster.local = scenario.echo_s, scenario.skew_s, scenario.local
    cluster.behind = {one.agent: one for one in scenario.behind}
    return cluster


def _shape(scenario: Scenario, method: Method) -> RunShape:
    return RunShape.of(
        method,
        run="sim",
        term=1,
        min_agents=scenario.min_agents,
        deadline_s=scenario.deadline_s,
        start_timeout_s=scenario.start_timeout_s,
        finish_s=scenario.finish_s,
        norm_limit=scenario.norm_limit,
        saves_to=_FOLDER if scenario.save_every_s else "",
        goals=Goals(
            max_time=scenario.max_time_s or None,
            max_cycles=scenario.cycles,
            dump=DumpModel(_FOLDER, scenario.save_every_s) if scenario.save_every_s else None,
        ),
    )


def _settled(scenario: Scenario, cluster: SimCluster, script: FaultScript, watch: Checker, now: float) -> bool:
    """Check that every living agent contributes long after the last fault. False: the run ended too soon to tell."""
    costs = scenario.costs
    over_at = max(script.over_at, watch.rested_at)  # who waited for an executor's quarantine starts after that
    if now < over_at + scenario.deadline_s + SETTLE_S + costs.respawn_s + 2 * costs.boot_s:
        return False
    watch.all_contribute({agent for agent in range(scenario.agents) if cluster.process(agent) is not None})
    return True


def standard_scenario(seed: int) -> Scenario:
    """A schedule as the bench counts it: 8 agents, 3 shards, 30 cycles, on average three faults that happen.

    Args:
        seed: of the schedule.
    """
    random = Random(seed)
    base = Scenario(min_agents=random.choice((1, 4, 6)), echo_s=random.choice((0.0, 2.5)))
    return replace(base, faults=random_faults(random, base.agents, base.cycles, 4.0, base.deadline_s))
