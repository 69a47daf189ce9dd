"""Of whom the driver says that it has taken no step, when, and how often."""

from __future__ import annotations

import logging

import pytest

from mpca.driver.agent_table import AgentTable
from mpca.driver.silence import Silence
from mpca.driver.states import AgentState
from mpca.wire.agent_ref import AgentId


def silence(state: AgentState, since: float = 0.0) -> tuple[Silence, AgentTable]:
    table = AgentTable(1, 1)
    table.executor_ready("3", "worker7", 2, since)
    on_the_way = [AgentState.JOINING, AgentState.READY, AgentState.BEGUN, AgentState.ACTIVE, AgentState.LATE]
    if state in on_the_way:
        for one in on_the_way[: on_the_way.index(state) + 1]:
            table.move(table.agents[0], one, since, "played")
    elif state != AgentState.STARTING:
        table.move(table.agents[0], state, since, "played")
    return Silence(table), table


def told(one: Silence, *times: float) -> list[float]:
    return [now for now in times if one.look(now)]


@pytest.mark.parametrize(
    ("state", "what"),
    [
        (AgentState.STARTING, "has not called mpca.attach for 1m00s"),
        (AgentState.BEGUN, "has taken no optimizer step since it began for 1m00s"),
        (AgentState.LATE, "has taken no optimizer step for 1m00s"),
    ],
)
def test_a_minute_without_a_step_is_told(state: AgentState, what: str, caplog: pytest.LogCaptureFixture) -> None:
    one, _ = silence(state, since=7.0)
    with caplog.at_level(logging.WARNING, "mpca.cycle"):
        assert one.look(66.9) == []
        (record,) = one.look(67.0)
    assert (record.kind, record.fields["event"], record.fields["reason"]) == ("agent", "silent", what)
    assert caplog.messages == [
        f'agent 0 (host worker7, executor 3) {what}; its output says where its Python is, after "Timeout"'
    ]


@pytest.mark.parametrize("state", ["ABSENT", "JOINING", "READY", "ACTIVE", "FINISHED"])
def test_nothing_is_told_of_who_waits_for_others_or_answers(state: str) -> None:
    assert told(silence(AgentState(state))[0], 60.0, 600.0) == []


def test_it_counts_from_the_last_step_and_is_told_again_when_it_has_doubled() -> None:
    one, _ = silence(AgentState.LATE, since=10.0)
    one.heard(AgentId(0, 0), 20.0)
    assert told(one, 79.0, 80.0, 81.0, 139.0, 140.0, 141.0, 259.0, 260.0) == [80.0, 140.0, 260.0]


def test_another_incarnation_has_a_minute_of_its_own() -> None:
    one, table = silence(AgentState.LATE)
    assert told(one, 60.0) == [60.0]
    table.died(AgentId(0, 0), "exit code 1", 70.0)
    assert told(one, 129.0, 130.0) == [130.0]
