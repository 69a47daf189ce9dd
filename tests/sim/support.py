"""A scripted story, played in the simulator, and scenarios that are drawn."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from mpca.sim.cluster import SimCluster
from mpca.sim.costs import Costs
from mpca.sim.faults import random_faults
from mpca.sim.run import Outcome, Scenario, simulate
from mpca.sim.world import World
from tests.support.script import Script, ScriptedCluster

__all__ = ["play", "random_scenario"]


def play(script: Script, seed: int, trainer: str) -> Outcome:
    """The run of this story; `trainer` is one of `sim.trainers.TRAINERS`. All of its acts have happened."""
    wrapped: list[ScriptedCluster] = []

    def around(cluster: SimCluster, world: World) -> ScriptedCluster:
        wrapped.append(ScriptedCluster(cluster, script.acts, cluster, script.agents, lambda: world.now))
        return wrapped[0]

    scenario = Scenario(
        agents=script.agents,
        method=script.method,
        min_agents=script.min_agents,
        cycles=script.cycles,
        deadline_s=script.deadline_s,
        parameters=script.parameters,
        buffers=0,
        trainer=trainer,
    )
    outcome = simulate(scenario, seed, around)
    assert wrapped[0].done == script.acts
    return outcome


def random_scenario(seed: int) -> Scenario:
    """A scenario as different from the next one as the engine allows: methods, phases, agents on one executor, links."""
    random = Random(seed)
    method = random.choice(
        (
            {"name": "mpca", "shards": 3, "phases": random.randint(1, 3)},
            {"name": "mpca", "shards": random.randint(1, 5), "install": "exchange"},
            {"name": "mpca", "correction": True, "shards": random.randint(1, 7)},
            {"name": "mpca-paper", "shards": random.randint(1, 4)},
            {"name": "sync", "tau": random.randint(1, 5)},
            {"name": "sync-ps", "nesterov": random.random() < 0.5},
            {"name": "sync-easgd", "tau": random.randint(1, 8)},  # rounds are shorter than the deadline, as they must be
            {"name": "overlap-local-sgd", "tau": random.randint(1, 8)},
            {"name": "dl4j-averaging", "averaging_frequency": random.randint(1, 5), "updater": "reset"},
            {"name": "diloco", "period": random.randint(1, 5)},
            {"name": "diloco", "period": 8, "fragments": random.randint(1, 8), "overlap": True},
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
