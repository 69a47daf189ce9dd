"""The simulator's executor follows the scripts that hold the Java one: `tests/golden/executor`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mpca.sim.executor import Answered, ExecutorState
from mpca.wire.agent_ref import AgentId

SCRIPTS = sorted((Path(__file__).parents[1] / "golden" / "executor").glob("*.json"))


def apply(executor: ExecutorState, event: dict[str, Any]) -> list[Any]:
    fields = dict(event)
    kind = fields.pop("kind")
    agents = [AgentId(*pair) for pair in fields.pop("agents", [])]
    if kind == "freeze":
        return executor.freeze(0, agents=agents, **fields)
    if kind == "made":
        return [one for who in agents for one in executor.made(**fields, who=who)]
    if "agent" in fields:
        fields["who"] = AgentId(fields.pop("agent"), fields.pop("incarnation"))
    out: list[Any] = getattr(executor, kind)(**fields)
    return out


def as_json(instruction: Any) -> dict[str, Any]:
    fields = {"do": "answer" if isinstance(instruction, Answered) else type(instruction).__name__.lower()}
    fields |= instruction._asdict()
    fields.pop("arrival", None)  # what was offered, which no script says
    if isinstance(instruction, Answered):
        del fields["ticket"]
        fields["frozen"] = [list(one) for one in instruction.frozen]
        fields["late"] = {str(agent): late.text for agent, late in instruction.late.items()}
    return fields


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_executor_follows_the_script(path: Path) -> None:
    executor = ExecutorState()
    script = json.loads(path.read_text())
    for number, step in enumerate(script["steps"]):
        done = [as_json(one) for one in apply(executor, step["event"])]
        assert done == step["expect"], f"step {number}: {step['event']}"


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 20


def test_a_cycle_has_one_shard() -> None:
    executor = ExecutorState()
    executor.agent_up(AgentId(0, 0))
    executor.freeze(1, 4, 1, [AgentId(0, 0)])
    with pytest.raises(ValueError, match="a cycle has one shard: cycle=4, shard=1, then shard=2"):
        executor.freeze(2, 4, 2, [AgentId(0, 0)])


def test_each_freeze_is_answered_with_its_own_ticket() -> None:
    executor = ExecutorState()
    executor.agent_up(AgentId(0, 0))
    executor.freeze(7, 4, 1, [AgentId(0, 0)])
    executor.freeze(8, 4, 1, [AgentId(0, 0)])
    answers = executor.snapshot(AgentId(0, 0), 4, 1, 3, 99, True)
    assert [one.ticket for one in answers] == [7, 8]
