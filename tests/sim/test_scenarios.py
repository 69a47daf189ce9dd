"""Five scripted stories, each in step (tau and bytes follow from the script) and in three phases (who contributes does).

The same files are run on real executors by `tests/spark`; the ledger in them was looked through by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpca.sim.cluster import SimCluster
from mpca.sim.run import Scenario, simulate
from mpca.sim.script import Script, ScriptedCluster, integer_ledger
from mpca.sim.trainers import LinearTrainer
from mpca.sim.world import World

FILES = sorted((Path(__file__).parents[1] / "golden" / "scenarios").glob("*.json"))


def play(script: Script, seed: int) -> list[dict[str, Any]]:
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
        trainer="linear",
    )
    outcome = simulate(scenario, seed, around)
    assert wrapped[0].done == script.acts
    return integer_ledger(outcome.commits, script.cycles, script.exact)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_ledger_is_that_of_the_script_whatever_the_seed(path: Path) -> None:
    script = Script.read(path)
    for seed in range(5):
        assert play(script, seed) == script.ledger, f"seed {seed}"


def test_ten_files() -> None:
    assert len(FILES) == 10


def test_bytes_of_a_step_are_those_of_plain_arithmetic() -> None:
    """Cycle 0 in step: three updates of lr 1/4 from zero, for each agent."""
    script = Script.read(FILES[0].with_name("no_fault_in_step.json"))
    import zlib

    for agent in range(script.agents):
        vector = np.zeros(script.parameters, "<f4")
        for _ in range(3):
            vector -= np.float32(0.25) * LinearTrainer.gradient_of(script.parameters, agent)
        assert script.ledger[0]["contributors"][str(agent)]["crc"] == zlib.crc32(vector.tobytes())


if __name__ == "__main__":  # writes the ledgers anew, to be looked through
    for file in FILES:
        values = json.loads(file.read_text())
        values["ledger"] = play(Script.read(file), 0)
        lines = []
        for key, value in values.items():
            rows = key in ("acts", "ledger") and value
            text = "[\n" + ",\n".join(f"    {json.dumps(row)}" for row in value) + "\n  ]" if rows else json.dumps(value)
            lines.append(f"  {json.dumps(key)}: {text}")
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
