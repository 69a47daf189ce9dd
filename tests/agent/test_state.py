"""The agent's decisions: events in, the exact instructions out."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from mpca.agent.events import (
    STEPPED,
    Attached,
    EndGroup,
    LinkLost,
    Publish,
    Raised,
    Release,
    Returned,
    SayFailed,
    SayFinished,
    SayHello,
    Stepped,
    Take,
    TakeMembers,
)
from mpca.agent.state import CLOSED, HOLDING, STOPPING, TRAINING, WAITING, AgentMachine
from mpca.errors import LocalProtocolError
from mpca.wire.messages import Begin, Install, Members, Stop, Yield


@dataclass(frozen=True)
class Rules:
    """A method's agent side, spelled out."""

    arrival: str = "target"
    install: str = "exchange"
    install_first: bool = False
    hold_after: int = 0

    def penalty(self, version: int) -> float:
        return version / 100


def machine(shards: int = 3, started: bool = True, **rules) -> AgentMachine:
    made = AgentMachine(agent=7, incarnation=1, shards=shards, method=Rules(**rules))
    if started:
        run(made, Attached(), Begin())
    return made


def run(machine: AgentMachine, *events) -> list:
    """All instructions of these events, one second apart."""
    return [one for now, event in enumerate(events) for one in machine.handle(event, float(now))]


def test_the_newest_membership_counts() -> None:
    agent = machine()
    told = run(agent, Members(1, {"a": 1}), Members(3, {"a": 3}), Members(3, {"a": 3}), Members(2, {"a": 2}))
    assert told == [TakeMembers({"a": 1}), TakeMembers({"a": 3})]


def test_attach_says_hello_and_waits() -> None:
    agent = machine(started=False)
    assert run(agent, Attached()) == [SayHello()]
    assert agent.stage == WAITING
    assert run(agent, Begin(), Begin()) == []
    assert agent.stage == TRAINING


def test_x0_is_read_with_tau_0_and_replaced_before_begin() -> None:
    agent = machine(shards=2, started=False)
    assert run(agent, Attached(), Yield(-2, 0), Yield(-1, 1), Install(0, 0, "replace"), Install(1, 0, "replace")) == [
        SayHello(), Publish(-2, 0, 0), Publish(-1, 1, 0), Take(0, 0, "replace"), Take(1, 0, "replace"),
    ]  # fmt: skip
    assert agent.pulls == ()


def test_tau_counts_updates_since_the_last_snapshot_of_the_same_shard() -> None:
    agent = machine()
    assert run(agent, Stepped(5), Yield(0, 0), STEPPED, Yield(1, 1), Stepped(3), Yield(2, 2), STEPPED, Yield(3, 0)) == [
        Publish(0, 0, 5), Publish(1, 1, 6), Publish(2, 2, 9), Publish(3, 0, 5),
    ]  # fmt: skip


def test_tau_of_an_agent_without_an_update_is_zero() -> None:
    assert run(machine(), Stepped(2), Yield(0, 0), Yield(1, 0)) == [Publish(0, 0, 2), Publish(1, 0, 0)]


def test_elastic_exchange_is_snapshot_then_install() -> None:
    agent = machine()
    assert run(agent, Install(2, 4, "install"), Install(1, 5, "install"), STEPPED) == []
    assert run(agent, Yield(9, 0)) == [Publish(9, 0, 1), Take(1, 5, "install"), Take(2, 4, "install")]
    assert run(agent, Yield(10, 1)) == [Publish(10, 1, 1)], "installed once"


def test_delay_corrected_exchange_is_install_then_snapshot() -> None:
    agent = machine(install_first=True, arrival="correct")
    run(agent, Install(0, 1, "install"), STEPPED)
    assert run(agent, Yield(3, 0)) == [Take(0, 1, "install"), Publish(3, 0, 1)]
    assert agent.pulls == ()


def test_method_may_install_on_arrival() -> None:
    assert run(machine(install="arrival"), Install(1, 4, "install")) == [Take(1, 4, "install")]


def test_pull_is_by_the_version_of_each_shard_and_starts_with_its_first_arrival() -> None:
    agent = machine(install="arrival")
    assert agent.pulls == ()
    run(agent, Install(2, 5, "install"), Install(0, 6, "install"))
    assert agent.pulls == ((0, 0.06), (2, 0.05))
    run(agent, Install(2, 8, "install"))
    assert agent.pulls == ((0, 0.06), (2, 0.08))


def test_joiner_starts_at_the_joint_state_unpulled() -> None:
    agent = machine(started=False, install="arrival")
    run(agent, Attached(), Install(0, 40, "replace"), Begin())
    assert (agent.pulls, agent.installed) == ((), [40, -1, -1])
    run(agent, Install(0, 41, "install"))
    assert agent.pulls == ((0, 0.41),)


def test_older_arrival_is_released_and_not_taken() -> None:
    agent = machine(install="arrival")
    run(agent, Install(1, 7, "install"))
    assert run(agent, Install(1, 6, "install"), Install(1, 7, "install")) == [
        Release(1, 6, "install"), Release(1, 7, "install"),
    ]  # fmt: skip
    assert agent.installed[1] == 7


def test_newest_of_two_waiting_arrivals_wins() -> None:
    agent = machine()
    assert run(agent, Install(1, 6, "install"), Install(1, 7, "install")) == [Release(1, 6, "install")]
    assert run(agent, Install(1, 5, "install")) == [Release(1, 5, "install")]
    assert run(agent, Yield(0, 0)) == [Publish(0, 0, 0), Take(1, 7, "install")]


def test_replacement_is_taken_at_once_and_drops_what_waits() -> None:
    agent = machine()
    assert run(agent, Install(1, 6, "install"), Install(1, 6, "replace")) == [
        Release(1, 6, "install"), Take(1, 6, "replace"),
    ]  # fmt: skip


HOLDS = {"arrival": "replace", "install": "arrival", "hold_after": 3}


def test_method_that_holds_answers_when_its_updates_are_done() -> None:
    agent = machine(shards=1, **HOLDS)
    assert run(agent, STEPPED, Yield(0, 0), STEPPED) == []
    assert run(agent, STEPPED) == [Publish(0, 0, 3)]
    assert agent.stage == HOLDING
    assert run(agent, Install(0, 1, "install")) == [Take(0, 1, "install")]
    assert agent.stage == TRAINING
    assert run(agent, STEPPED, STEPPED, STEPPED) == []
    assert (agent.stage, run(agent, Yield(1, 0))) == (HOLDING, [Publish(1, 0, 3)])


def test_method_that_holds_goes_on_with_the_last_shard() -> None:
    agent = machine(shards=2, **HOLDS)
    run(agent, STEPPED, STEPPED, STEPPED, Yield(0, 0), Yield(1, 1), Install(1, 1, "install"))
    assert agent.stage == HOLDING
    run(agent, Install(0, 1, "install"))
    assert agent.stage == TRAINING


def test_arrival_for_a_late_agent_starts_its_updates_anew() -> None:
    agent = machine(shards=1, **HOLDS)
    run(agent, STEPPED, STEPPED, Install(0, 1, "install"), STEPPED, STEPPED)
    assert agent.stage == TRAINING
    run(agent, STEPPED)
    assert agent.stage == HOLDING


def test_stop_ends_a_hold_and_answers_what_was_deferred() -> None:
    agent = machine(shards=1, **HOLDS)
    assert run(agent, STEPPED, Yield(0, 0), Stop("enough"), Stop("again")) == [Publish(0, 0, 1)]
    assert (agent.stage, agent.stop_reason) == (STOPPING, "enough")
    holding = machine(shards=1, **HOLDS)
    run(holding, Stepped(3), Stop("enough"))
    assert holding.stage == STOPPING


def test_stopping_agent_still_answers() -> None:
    agent = machine()
    run(agent, Stepped(2), Stop("enough"))
    assert run(agent, Yield(1, 0), Begin(), STEPPED) == [Publish(1, 0, 2)]
    assert agent.stage == STOPPING


def test_agent_that_is_stopped_before_attach_says_no_hello() -> None:
    agent = machine(started=False)
    assert run(agent, Stop("enough"), Attached(), STEPPED, Returned(b"x")) == [SayFinished(b"x")]


def test_last_word_closes_and_what_crosses_it_is_dropped() -> None:
    agent = machine()
    assert run(agent, Raised("ValueError: no", "Traceback")) == [SayFailed("ValueError: no", "Traceback")]
    assert run(agent, Yield(1, 0), Install(0, 1, "install"), Stop("x"), LinkLost(), STEPPED) == []
    assert agent.stage == CLOSED


def test_lost_link_ends_the_group() -> None:
    assert run(machine(), LinkLost()) == [EndGroup()]


@pytest.mark.parametrize("event", ["a word", Attached()])
def test_illegal_event_changes_nothing(event) -> None:
    agent = machine()
    with pytest.raises(LocalProtocolError, match="agent=7, stage=TRAINING"):
        agent.handle(event, 5.0)
    assert agent.stage == TRAINING


def test_stage_changes_are_logged_in_one_line_and_stamped(caplog: pytest.LogCaptureFixture) -> None:
    agent = machine(shards=1, **HOLDS)
    with caplog.at_level(logging.INFO, logger="mpca.agent"):
        agent.handle(Stepped(3), 12.5)
    assert caplog.messages == ['agent=7 stage TRAINING -> HOLDING reason="3 of 3 updates are done"']
    assert agent.stage_since == 12.5
