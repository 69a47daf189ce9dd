"""Which moves of a run and of an agent are legal, and that no other changes anything."""

from __future__ import annotations

from itertools import product

import pytest

from mpca.driver.events import AgentDied, ExecutorReady, Tick
from mpca.driver.states import AGENT_MOVES, RUN_MOVES, AgentState, RunState, Story
from mpca.errors import LocalProtocolError
from tests.driver.support import Machine, hello


@pytest.mark.parametrize(("before", "after"), [*product(AgentState, repeat=2)], ids=str)
def test_an_agent_moves_as_the_table_says_and_not_otherwise(before: AgentState, after: AgentState) -> None:
    table = Machine().machine.run.table
    agent = table.agents[0]
    agent.state = before
    if after in AGENT_MOVES[before]:
        table.move(agent, after, 3.0, "because")
        assert (agent.state, agent.since, agent.why) == (after, 3.0, "because")
    else:
        with pytest.raises(LocalProtocolError, match=f"agent=0 state {before} -> {after} reason='because'"):
            table.move(agent, after, 3.0, "because")
        assert (agent.state, agent.since, agent.why) == (before, 0.0, "")


@pytest.mark.parametrize(("before", "after"), [*product(RunState, repeat=2)], ids=str)
def test_a_run_moves_as_the_table_says_and_not_otherwise(before: RunState, after: RunState) -> None:
    machine = Machine().machine
    machine.run.state = before
    if after in RUN_MOVES[before]:
        machine.run.enter(after, "because", 3.0)
        assert machine.state == after
    else:
        with pytest.raises(LocalProtocolError, match=f"driver state {before} -> {after} reason='because'"):
            machine.run.enter(after, "because", 3.0)
        assert machine.state == before


def test_every_state_has_a_row_and_those_that_end_have_an_empty_one() -> None:
    assert set(AGENT_MOVES) == set(AgentState)
    assert [state for state, after in AGENT_MOVES.items() if not after] == [AgentState.FINISHED]
    assert set(RUN_MOVES) == set(RunState)
    assert [state for state, after in RUN_MOVES.items() if not after] == [RunState.CLOSED]


def test_an_illegal_move_tells_the_last_twenty_events() -> None:
    story = Story()
    for number in range(25):
        story.heard(AgentDied("e0", number, 0, 1, 137, ""), float(number))
        story.heard(Tick(), number + 0.1)
        story.heard(Tick(), number + 0.2)
    with pytest.raises(LocalProtocolError) as refused:
        story.moved("driver", RunState.CLOSED, RunState.RUNNING, "no", RUN_MOVES, 25.0)
    told = str(refused.value).splitlines()[1:]
    assert told == [
        f"  {line}"
        for number in range(15, 25)
        for line in (f"{number}.000 {AgentDied('e0', number, 0, 1, 137, '')!r}", f"{number}.200 Tick()")
    ]


def test_the_story_of_a_run_is_its_events_and_what_moved() -> None:
    machine = Machine(agents=1)
    machine.tell(ExecutorReady("e0", "host0", 2), at=1.0)
    machine.tell(hello(0), at=2.5)
    assert [line for line in machine.machine.run.story.lines() if "state" in line] == [
        "1.000 agent=0 state ABSENT -> STARTING reason='room on executor e0'",
        "2.500 agent=0 state STARTING -> JOINING reason='hello'",
        "2.500 driver state STARTING -> READING reason='1/1 agents said hello'",
    ]
    assert machine.machine.run.story.lines()[0] == "1.000 ExecutorReady(executor='e0', host='host0', cores=2)"
