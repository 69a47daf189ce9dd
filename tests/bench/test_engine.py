"""What a bench says that has lost an agent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mpca.cli.bench.run.engine import Marks, Opened
from mpca.driver.agent_table import AgentTable
from mpca.driver.states import RunState
from mpca.errors import MpcaError


class Pauses:
    """A runner whose run pauses at once, and ends when it is stopped."""

    def __init__(self) -> None:
        self.machine = SimpleNamespace(ended=None, state=RunState.RUNNING)

    def once(self) -> None:
        self.machine.state = RunState.PAUSED

    def stop(self, status: str, reason: str) -> None:
        self.machine.ended = SimpleNamespace(status=status, reason=reason)


def test_a_bench_that_lost_an_agent_says_which_and_why() -> None:
    table = AgentTable(2, 1)
    for name in ("1", "2", "3"):
        table.executor_ready(name, f"host{name}", 2, 0.0)
    table.executor_lost("2", "its host is gone", 1.0)
    assert table.agents[1].executor == "3", "it is started again before anybody is told"
    opened: Any = Opened(Pauses(), None, Marks("lo", "app"), table)  # type: ignore[arg-type]
    with pytest.raises(MpcaError) as refused:
        opened.finish()
    assert "agent 1 is STARTING: executor 2 lost: its host is gone" in str(refused.value)
