"""The scripted scenarios that the simulator plays, on real executors: the same integer ledger, to the checksum."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.engine import Observed
from tests.spark.jobs import linear
from tests.support.script import Script, ScriptedCluster, integer_ledger

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(400)]

FILES = sorted((Path(__file__).parents[1] / "golden" / "scenarios").glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_real_executors_write_the_ledger_of_the_script(engine, path: Path) -> None:
    script = Script.read(path)
    wrapped: list[ScriptedCluster] = []

    def scripted(observed: Observed) -> ScriptedCluster:
        wrapped.append(ScriptedCluster(observed, script.acts, observed, script.agents))
        return wrapped[0]

    # Longer than the script's own, which is virtual time: an order waits here while a new agent starts, or nobody but who
    # was stopped may be late on a busy machine.
    deadline = "8s" if any(act.do == "stop_agent" for act in script.acts) else "100s"
    sets = [f"method.{key}={value}" for key, value in script.method.items()]
    sets += [
        f"cluster.agents={script.agents}",
        f"cluster.min_agents={script.min_agents}",
        f"cluster.cycle_deadline={deadline}",
        f"objectives.max_cycles={script.cycles}",
    ]
    told = engine(linear, script.parameters, sets=tuple(sets), around=scripted)
    assert told.ended.exit_code == 0, told.ended.reason
    assert wrapped[0].done == script.acts
    assert integer_ledger(told.cycles, script.cycles, script.exact) == script.ledger
