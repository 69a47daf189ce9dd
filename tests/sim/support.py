"""A scripted story, played in the simulator."""

from __future__ import annotations

from mpca.sim.cluster import SimCluster
from mpca.sim.run import Outcome, Scenario, simulate
from mpca.sim.script import Script, ScriptedCluster
from mpca.sim.world import World

__all__ = ["play"]


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
