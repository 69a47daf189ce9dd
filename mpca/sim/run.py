"""One simulated run: the production driver, agents and methods over a cluster in virtual time. Same seed, same ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

from mpca import methods
from mpca.algorithm.sharding import ShardPlan
from mpca.driver.agent_table import AgentTable
from mpca.driver.cluster import AgentSpec
from mpca.driver.cycle import CycleMachine
from mpca.driver.events import ReadLocal
from mpca.driver.instructions import End
from mpca.driver.objectives import Goals
from mpca.driver.run_shape import RunShape
from mpca.driver.runner import Runner
from mpca.driver.states import RunState
from mpca.records import CycleRecord, Record, to_json
from mpca.sim.agents import Behind
from mpca.sim.check import Checker
from mpca.sim.cluster import SimCluster
from mpca.sim.costs import Costs
from mpca.sim.faults import Fault, FaultScript, random_faults
from mpca.sim.trainers import TRAINERS
from mpca.sim.world import World

__all__ = ["Outcome", "Scenario", "random_scenario", "simulate", "standard_scenario"]

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
    trainer: str = "integer"  # one of trainers.TRAINERS
    costs: Costs = field(default_factory=Costs)
    local: bool = False  # the model has a tensor that is not exchanged: it counts an agent's updates
    norm_limit: float = 0.0  # off: the whole numbers wrap around, so their distances say nothing
    faults: tuple[Fault, ...] = ()
    behind: tuple[Behind, ...] = ()  # what these agents' train functions do behind their loops; the others do nothing
    skew_s: float = 0.0  # wall clocks of executors are wrong by so much, every other one ahead
    echo_s: float = 0.0  # > 0: the last words of a dead incarnation are heard again after so long
    patience_s: float = 900.0  # of virtual time: the run must have ended

    def to_json(self) -> str:
        """As one line of JSON, which `from_json` reads."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Scenario:
        """Read a scenario that `to_json` wrote.

        Raises:
            TypeError: it has a key that no scenario has.
        """
        values = json.loads(text)
        values["costs"] = Costs(**values.get("costs", {}))
        values["behind"] = tuple(Behind(**one) for one in values.get("behind", ()))
        values["faults"] = tuple(Fault(**one) for one in values.get("faults", ()))
        return cls(**values)


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


def simulate(scenario: Scenario, seed: int, around: Callable[[SimCluster, World], Any] | None = None) -> Outcome:
    """Run a scenario to its end.

    Args:
        scenario: what is simulated.
        seed: of every chance in it. The same seed gives the same ledger.
        around: may put something between driver and cluster (`script.ScriptedCluster`).

    Returns:
        The ledger, the joint model, and what happened.

    Raises:
        Violation: an invariant does not hold; its message has the seed and the story.
    """
    world = World(seed)
    method = methods.from_dict(scenario.method)
    plan = ShardPlan.equal(scenario.parameters + scenario.buffers, scenario.parameters, method.shards)
    bounds = list(plan.bounds)
    watch = Checker(world, seed, method, scenario.agents, scenario.min_agents)

    def trainer(agent: int, incarnation: int) -> Any:
        return TRAINERS[scenario.trainer](bounds, scenario.parameters, method.arrival, agent, incarnation)

    cluster = SimCluster(
        world, scenario.costs, method, bounds, scenario.parameters, scenario.agents, scenario.per_executor, trainer, watch
    )
    cluster.echo_s, cluster.skew_s, cluster.local = scenario.echo_s, scenario.skew_s, scenario.local
    cluster.behind = {one.agent: one for one in scenario.behind}
    script = FaultScript(world, cluster, scenario.faults)
    cluster.reach = script.reach
    shape = RunShape.of(
        method,
        run="sim",
        term=1,
        min_agents=scenario.min_agents,
        deadline_s=scenario.deadline_s,
        start_timeout_s=scenario.start_timeout_s,
        finish_s=scenario.finish_s,
        norm_limit=scenario.norm_limit,
        max_cycles=scenario.cycles,
    )
    machine = CycleMachine(shape, AgentTable(scenario.agents, scenario.per_executor), world.clock.now())
    ledger = _Ledger(watch)
    spec = AgentSpec("python", {}, {})
    port = around(cluster, world) if around else cluster
    runner = Runner(machine, port, method, spec, Goals(max_cycles=scenario.cycles), ledger, world.clock)
    watch.joint = lambda: runner.joint
    for _ in range(scenario.executors or -(-scenario.agents // scenario.per_executor)):
        cluster.add_executor()
    settled: bool | None = None
    while machine.ended is None:
        runner.step(port.poll(POLL_S))
        watch.look(cluster)
        if machine.cycle >= scenario.cycles and settled is None:  # before the agents were told to stop
            settled = _settled(scenario, cluster, script, watch, world.now)
        if scenario.local and machine.state == RunState.RUNNING and machine.cycle % READ_LOCAL_EVERY == 0:
            runner.step([ReadLocal()])
        runner.beside()
        if world.now > scenario.patience_s:
            watch.stuck(f"the run has not ended after {world.now:.0f} s; state {machine.state}, cycle {machine.cycle}")
    watch.look(cluster)
    watch.ended()
    cluster.close()
    watch.closed(cluster)
    assert runner.joint is not None
    return Outcome(
        ledger.written,
        [state.x for state in runner.joint.states if state is not None],
        machine.ended,
        world.happened,
        machine.cycle,
        script.fired,
        world.now,
        runner.trained_s,
        bool(settled),
        {name: int.from_bytes(data, "little") for name, (_, _, data) in runner.joint.layout.local.items()},
    )


def _settled(scenario: Scenario, cluster: SimCluster, script: FaultScript, watch: Checker, now: float) -> bool:
    """Check that every living agent contributes long after the last fault. False: the run ended too soon to tell."""
    costs = scenario.costs
    if now < script.over_at + scenario.deadline_s + SETTLE_S + costs.respawn_s + 2 * costs.boot_s:
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


def random_scenario(seed: int) -> Scenario:
    """A scenario as different from the next one as the engine allows: methods, phases, agents on one executor, links.

    Args:
        seed: of the scenario.
    """
    random = Random(seed)
    method = random.choice(
        (
            {"name": "mpca", "shards": 3, "phases": random.randint(1, 3)},
            {"name": "mpca", "shards": random.randint(1, 5), "install": "exchange"},
            {"name": "mpca", "correction": True, "shards": random.randint(1, 7)},
            {"name": "sync", "tau": random.randint(1, 5)},
        )
    )
    if method["name"] == "mpca":
        method |= {"gamma_ramp": random.choice((0, 20)), "beta": random.choice((1.0, 0.9, 0.5)), "gamma": 0.7}
    agents = random.randint(2, 8)
    per_executor = random.choice((1, 1, 2))
    executors = max(1, -(-agents // per_executor) - random.choice((0, 0, 0, 1)))
    base = Scenario(
        agents=agents,
        per_executor=per_executor,
        executors=executors,
        method=method,
        min_agents=random.randint(1, min(max(1, agents - 1), executors * per_executor)),
        deadline_s=random.choice((2.0, 5.0)),
        start_timeout_s=20.0,
        costs=Costs(rate=random.choice((8e6, 1e7, 1e8)), step_s=random.choice((0.005, 0.02, 0.1))),
        echo_s=random.choice((0.0, 2.5)),
    )
    faults = random_faults(random, agents, base.cycles, 3.0, base.deadline_s)
    return replace(base, faults=faults, local=seed % 2 == 1)
