"""The agent's decisions: events in, the exact instructions out."""

from __future__ import annotations

import logging

import pytest

from mpca.agent.events import (
    STEPPED,
    Attached,
    CutAnew,
    EndGroup,
    LinkLost,
    Publish,
    Raised,
    Release,
    ResetOptimizer,
    Returned,
    SayFailed,
    SayFinished,
    SayHello,
    SayProgress,
    Stepped,
    StopSeen,
    Take,
    TakeReaders,
)
from mpca.agent.state import CLOSED, HOLDING, MOVES, STOPPING, TRAINING, WAITING, AgentMachine, State
from mpca.errors import LocalProtocolError
from mpca.methods import AgentSide, How, When
from mpca.wire.codec import FrameReader, encode
from mpca.wire.messages import Begin, Cut, Install, ReadersChanged, SnapshotRequest, Stop


class Side(AgentSide):
    """An agent's side with a slow early schedule."""

    def penalty(self, alpha: float, age: int | None) -> float:
        return alpha if age is None else max(alpha, 1 / (2 + age))


def machine(shards: int = 3, started: bool = True, **side) -> AgentMachine:
    made = AgentMachine(agent=7, incarnation=1, shards=shards, side=Side(**side))
    if started:
        run(made, Attached(), Begin())
    return made


def run(machine: AgentMachine, *events) -> list:
    """All instructions of these events, one second apart."""
    return [one for now, event in enumerate(events) for one in machine.handle(event, float(now))]


def test_the_newest_list_of_readers_counts() -> None:
    agent = machine()
    told = run(agent, *(ReadersChanged(version, {"a": version}) for version in (1, 3, 3, 2)))
    assert told == [TakeReaders({"a": 1}), TakeReaders({"a": 3})]


def test_attach_says_hello_and_waits() -> None:
    agent = machine(started=False)
    assert run(agent, Attached()) == [SayHello()]
    assert agent.state == WAITING
    assert run(agent, Begin(), Begin()) == []
    assert agent.state == TRAINING


def test_x0_is_read_with_tau_0_and_replaced_before_begin() -> None:
    agent = machine(shards=2, started=False)
    installs = Install(0, 0, "replace"), Install(1, 0, "replace")
    assert run(agent, Attached(), SnapshotRequest(-2, 0), SnapshotRequest(-1, 1), *installs) == [
        SayHello(), Publish(-2, 0, 0), Publish(-1, 1, 0), Take(0, 0, "replace"), Take(1, 0, "replace"),
    ]  # fmt: skip
    assert agent.pulls == ()


def test_tau_counts_updates_since_the_last_snapshot_of_the_same_shard() -> None:
    agent = machine()
    asked = [SnapshotRequest(cycle, cycle % 3) for cycle in range(4)]
    assert run(agent, Stepped(5), asked[0], STEPPED, asked[1], Stepped(3), asked[2], STEPPED, asked[3]) == [
        Publish(0, 0, 5), Publish(1, 1, 6), Publish(2, 2, 9), Publish(3, 0, 5),
    ]  # fmt: skip


def test_tau_of_an_agent_without_an_update_is_zero() -> None:
    assert run(machine(), Stepped(2), SnapshotRequest(0, 0), SnapshotRequest(1, 0)) == [Publish(0, 0, 2), Publish(1, 0, 0)]


def test_elastic_exchange_is_snapshot_then_install() -> None:
    agent = machine()
    assert run(agent, Install(2, 4, "install"), Install(1, 5, "install"), STEPPED) == []
    assert run(agent, SnapshotRequest(9, 0)) == [Publish(9, 0, 1), Take(1, 5, "install"), Take(2, 4, "install")]
    assert run(agent, SnapshotRequest(10, 1)) == [Publish(10, 1, 1)], "installed once"


def test_delay_corrected_exchange_is_install_then_snapshot() -> None:
    agent = machine(how=How.CORRECT, when=When.BEFORE_SNAPSHOT)
    run(agent, Install(0, 1, "install"), STEPPED)
    assert run(agent, SnapshotRequest(3, 0)) == [Take(0, 1, "install"), Publish(3, 0, 1)]
    assert agent.pulls == ()


def test_method_may_install_on_arrival() -> None:
    assert run(machine(when=When.ON_ARRIVAL), Install(1, 4, "install")) == [Take(1, 4, "install")]


def test_pull_is_by_what_came_with_each_shard_and_starts_with_its_first_arrival() -> None:
    agent = machine(when=When.ON_ARRIVAL)
    assert agent.pulls == ()
    run(agent, Install(2, 5, "install", 0.05), Install(0, 6, "install", 0.06))
    assert agent.pulls == ((0, 0.06), (2, 0.05))
    run(agent, Install(2, 8, "install", 0.08), STEPPED)
    assert agent.pulls == ((0, 0.06), (2, 0.08))


def test_the_early_schedule_goes_on_with_every_update_since_version_1_of_the_shard() -> None:
    """This side pulls by 1 / (2 + updates), until that is less than what came with the joint state."""
    agent = machine(shards=2, when=When.ON_ARRIVAL)
    run(agent, STEPPED, Install(0, 1, "install", 0.3), Install(1, 2, "install", 0.1))
    seen = [(agent.pulls, agent.bursting)]
    for event in (STEPPED, Install(0, 2, "install", 0.2), STEPPED, STEPPED, STEPPED):
        run(agent, event)
        seen.append((agent.pulls, agent.bursting))
    assert seen == [
        (((0, 1 / 2), (1, 0.1)), True),
        (((0, 1 / 3), (1, 0.1)), True),
        (((0, 1 / 3), (1, 0.1)), True),  # a newer version does not begin it again, nor end it
        (((0, 1 / 4), (1, 0.1)), True),
        (((0, 1 / 5), (1, 0.1)), False),
        (((0, 0.2), (1, 0.1)), False),
    ]


def test_the_early_schedule_by_versions_stays_while_the_agent_trains() -> None:
    agent = machine(shards=1, when=When.ON_ARRIVAL, decay_by_version=True)
    run(agent, STEPPED, Install(0, 1, "install", 0.3))
    seen = [agent.pulls]
    for event in (STEPPED, STEPPED, Install(0, 2, "install", 0.3), STEPPED, Install(0, 3, "install", 0.3)):
        run(agent, event)
        assert not agent.bursting, "updates between two versions change nothing"
        seen.append(agent.pulls)
    assert seen == [((0, one),) for one in (1 / 2, 1 / 2, 1 / 2, 1 / 3, 1 / 3, 0.3)]


def test_joiner_starts_at_the_joint_state_unpulled_and_without_the_early_schedule() -> None:
    agent = machine(started=False, when=When.ON_ARRIVAL, shards=1)
    run(agent, Attached(), Install(0, 40, "replace"), Begin())
    assert (agent.pulls, agent.installed) == ((), [40])
    run(agent, STEPPED, Install(0, 41, "install", 0.41))
    assert (agent.pulls, agent.bursting) == (((0, 0.41),), False)


def test_an_agent_that_is_replaced_by_a_later_version_has_no_early_schedule_left() -> None:
    agent = machine(when=When.ON_ARRIVAL, shards=1)
    run(agent, Install(0, 1, "install", 0.1), STEPPED, Install(0, 2, "replace"), Install(0, 3, "install", 0.1))
    assert (agent.pulls, agent.bursting) == (((0, 0.1),), False)


def test_older_arrival_is_released_and_not_taken() -> None:
    agent = machine(when=When.ON_ARRIVAL)
    run(agent, Install(1, 7, "install"))
    assert run(agent, Install(1, 6, "install"), Install(1, 7, "install")) == [
        Release(1, 6, "install"), Release(1, 7, "install"),
    ]  # fmt: skip
    assert agent.installed[1] == 7


def test_a_replacement_of_the_version_that_is_installed_is_taken_and_an_arrival_of_it_is_not() -> None:
    """As they come from the pipe: the driver hands the joint model to an agent whose parameters are not finite."""
    agent = machine(shards=1, when=When.ON_ARRIVAL)
    wire = b"".join(encode(Install(0, 4, mode)) for mode in ("install", "install", "replace"))
    first, again, replacement = FrameReader().feed(wire)
    assert run(agent, STEPPED, first) == [Take(0, 4, "install")]
    assert run(agent, again) == [Release(0, 4, "install")]
    assert run(agent, replacement) == [Take(0, 4, "replace"), ResetOptimizer()]


def test_newest_of_two_waiting_arrivals_wins() -> None:
    agent = machine()
    assert run(agent, Install(1, 6, "install"), Install(1, 7, "install")) == [Release(1, 6, "install")]
    assert run(agent, Install(1, 5, "install")) == [Release(1, 5, "install")]
    assert run(agent, SnapshotRequest(0, 0)) == [Publish(0, 0, 0), Take(1, 7, "install")]


REPLACED = [Take(0, 7, "replace"), Take(1, 7, "replace"), Take(2, 7, "replace"), ResetOptimizer()]


def replace_all(version: int = 7) -> list[Install]:
    return [Install(shard, version, "replace") for shard in (2, 0, 1)]


def test_updates_that_a_replacement_threw_away_are_no_weight() -> None:
    """The driver weighs by tau: a model that is the joint state itself has none, and then only what it did since."""
    agent = machine()
    run(agent, Stepped(36), SnapshotRequest(5, 2), Stepped(64), *replace_all())
    asked = [SnapshotRequest(8, 0), SnapshotRequest(9, 1), SnapshotRequest(10, 2), SnapshotRequest(11, 0)]
    assert run(agent, asked[0], Stepped(2), asked[1], Stepped(3), *asked[2:]) == [
        Publish(8, 0, 0), Publish(9, 1, 2), Publish(10, 2, 5), Publish(11, 0, 5),
    ]  # fmt: skip


def test_an_agent_in_step_that_is_late_counts_from_the_mean_that_replaced_it() -> None:
    agent = machine(shards=1, **HOLDS)
    run(agent, STEPPED, STEPPED, Install(0, 1, "install"), Stepped(3))
    assert run(agent, SnapshotRequest(1, 0)) == [Publish(1, 0, 3)]


def test_an_agent_that_trains_replaces_all_shards_between_the_same_two_batches_and_its_optimiser_begins_anew() -> None:
    agent = machine()
    first, second, third = replace_all()
    assert run(agent, Stepped(4), first, STEPPED, second, STEPPED) == []
    assert run(agent, third) == REPLACED
    assert agent.pulls == ()


def test_a_replacement_frees_the_slots_of_arrivals_that_wait() -> None:
    agent = machine()
    assert run(agent, Stepped(4), Install(1, 6, "install"), replace_all()[0]) == [Release(1, 6, "install")]
    assert run(agent, *replace_all()[1:]) == REPLACED


def test_begin_frees_slots_too_since_the_replacement_may_wait_for_all_of_them() -> None:
    agent = machine()
    waiting = [Install(shard, 6, "install") for shard in range(3)]
    assert run(agent, Stepped(4), *waiting, Begin()) == [Release(shard, 6, "install") for shard in range(3)]
    assert run(agent, *replace_all()) == REPLACED


def test_a_replacement_that_is_not_whole_at_the_second_exchange_is_taken_before_the_snapshot() -> None:
    agent = machine()
    run(agent, Stepped(4), *replace_all()[:2])
    assert run(agent, SnapshotRequest(8, 0)) == [Publish(8, 0, 4)]
    assert run(agent, SnapshotRequest(9, 0)) == [
        Take(0, 7, "replace"), Take(2, 7, "replace"), ResetOptimizer(), Publish(9, 0, 0),
    ]  # fmt: skip


def test_what_a_replacement_lacks_may_come_behind_the_next_request() -> None:
    """Its slot was free only when the request was on its way."""
    agent = machine()
    first, second, last = replace_all()
    run(agent, Stepped(4), first, second)
    assert run(agent, SnapshotRequest(8, 0)) == [Publish(8, 0, 4)]
    assert run(agent, last) == REPLACED


def test_a_newer_replacement_of_a_shard_takes_the_place_of_the_older() -> None:
    agent = machine()
    run(agent, Stepped(4), Install(0, 6, "replace"))
    assert run(agent, Install(0, 7, "replace")) == [Release(0, 6, "replace")]
    assert run(agent, *replace_all()[::2]) == REPLACED


def test_an_optimiser_that_has_made_no_update_is_left_alone() -> None:
    agent = machine(started=False)
    run(agent, Attached())
    assert run(agent, *replace_all(), Begin()) == [Take(shard, 7, "replace") for shard in (2, 0, 1)]


def test_who_waits_for_the_others_is_replaced_at_once() -> None:
    agent = machine(shards=1, **HOLDS)
    run(agent, Stepped(3), SnapshotRequest(0, 0))
    assert run(agent, Install(0, 1, "replace")) == [Take(0, 1, "replace"), ResetOptimizer()]
    assert agent.state == TRAINING


HOLDS = {"how": How.REPLACE, "when": When.ON_ARRIVAL, "hold_after": 3}


def test_method_that_holds_answers_when_its_updates_are_done() -> None:
    agent = machine(shards=1, **HOLDS)
    assert run(agent, STEPPED, SnapshotRequest(0, 0), STEPPED) == []
    assert run(agent, STEPPED) == [Publish(0, 0, 3)]
    assert agent.state == HOLDING
    assert run(agent, Install(0, 1, "install")) == [Take(0, 1, "install")]
    assert agent.state == TRAINING
    assert run(agent, STEPPED, STEPPED, STEPPED) == []
    assert (agent.state, run(agent, SnapshotRequest(1, 0))) == (HOLDING, [Publish(1, 0, 3)])


def test_who_is_asked_again_for_the_same_cycle_says_the_same_until_an_update_or_a_replacement() -> None:
    agent = machine(shards=1, **HOLDS)
    run(agent, Stepped(3))
    assert run(agent, SnapshotRequest(0, 0), SnapshotRequest(0, 0)) == [Publish(0, 0, 3)] * 2, "the first one came too late"
    assert run(agent, SnapshotRequest(1, 0)) == [Publish(1, 0, 0)], "the sum of cycle 0 may have it"
    run(agent, Install(0, 1, "install"), Stepped(3), SnapshotRequest(2, 0), Install(0, 2, "install"))
    assert run(agent, SnapshotRequest(2, 0), Stop("enough")) == [Publish(2, 0, 0)], "what it handed over is gone"
    trains = machine(shards=1)
    assert run(trains, Stepped(3), SnapshotRequest(0, 0), STEPPED, SnapshotRequest(0, 0))[-1] == Publish(0, 0, 1)


def test_method_that_holds_after_a_time_finishes_the_update_and_hands_over_what_it_has() -> None:
    agent = machine(shards=1, how=How.REPLACE, when=When.ON_ARRIVAL, hold_s=2.5)  # training begins at 1 s
    assert agent.handle(SnapshotRequest(0, 0), 1.5) == ()
    assert [agent.handle(STEPPED, now) for now in (2.0, 3.0)] == [(), ()]
    assert agent.handle(STEPPED, 4.0) == (Publish(0, 0, 3),)
    assert agent.state == HOLDING
    assert agent.handle(Install(0, 1, "install"), 10.0) == (Take(0, 1, "install"),)
    assert (agent.handle(STEPPED, 12.0), agent.state) == ((), TRAINING)
    assert (agent.handle(STEPPED, 12.5), agent.state) == ((), HOLDING)
    assert agent.handle(SnapshotRequest(1, 0), 13.0) == (Publish(1, 0, 2),)


def test_an_optimiser_state_that_is_exchanged_stays_with_the_parameters_that_it_came_with() -> None:
    agent = machine(shards=1, **HOLDS, exchanges_optimizer=True)
    run(agent, Stepped(3), SnapshotRequest(0, 0))
    assert run(agent, Install(0, 1, "install")) == [Take(0, 1, "install")]
    assert run(agent, STEPPED, Install(0, 2, "replace")) == [Take(0, 2, "replace")]


def test_method_may_reset_the_optimiser_with_each_joint_state() -> None:
    agent = machine(shards=1, **HOLDS, resets_optimizer=True)
    run(agent, Stepped(3), SnapshotRequest(0, 0))
    assert run(agent, Install(0, 1, "install")) == [Take(0, 1, "install"), ResetOptimizer()]
    later = machine(shards=1, how=How.REPLACE, when=When.AFTER_SNAPSHOT, resets_optimizer=True)
    run(later, STEPPED, Install(0, 1, "install"))
    assert run(later, SnapshotRequest(1, 0)) == [Publish(1, 0, 1), Take(0, 1, "install"), ResetOptimizer()]


def test_method_that_holds_goes_on_with_the_last_shard() -> None:
    agent = machine(shards=2, **HOLDS)
    run(agent, STEPPED, STEPPED, STEPPED, SnapshotRequest(0, 0), SnapshotRequest(1, 1), Install(1, 1, "install"))
    assert agent.state == HOLDING
    run(agent, Install(0, 1, "install"))
    assert agent.state == TRAINING
    run(agent, STEPPED, STEPPED, STEPPED, Install(1, 2, "install"))
    assert agent.state == HOLDING, "every joint state has all its shards to come"
    run(agent, Install(0, 2, "install"))
    assert agent.state == TRAINING
    run(agent, STEPPED, STEPPED, STEPPED, Install(1, 3, "install"))
    assert agent.state == HOLDING, "this time too, whichever comes first"


def test_arrival_for_a_late_agent_starts_its_updates_anew() -> None:
    agent = machine(shards=1, **HOLDS)
    run(agent, STEPPED, STEPPED, Install(0, 1, "install"), STEPPED, STEPPED)
    assert agent.state == TRAINING
    run(agent, STEPPED)
    assert agent.state == HOLDING


WAITS = {"how": How.MIX, "when": When.BEFORE_SNAPSHOT, "snapshot_after": 3}


def test_method_may_answer_after_a_number_of_updates_and_never_holds() -> None:
    agent = machine(shards=2, **WAITS)
    assert run(agent, STEPPED, SnapshotRequest(0, 0), STEPPED) == []
    assert (agent.state, agent.due_in) == (TRAINING, 1)
    assert run(agent, STEPPED, STEPPED) == [Publish(0, 0, 3)]
    assert (agent.state, agent.due_in) == (TRAINING, 0)
    assert run(agent, SnapshotRequest(1, 1), STEPPED) == [], "counted from the last snapshot of any shard"
    assert run(agent, STEPPED) == [Publish(1, 1, 6)]
    assert run(agent, Stepped(5), SnapshotRequest(2, 0)) == [Publish(2, 0, 8)], "at once, if they are made"


def test_stop_answers_what_waits_for_updates() -> None:
    assert run(machine(shards=1, **WAITS), STEPPED, SnapshotRequest(0, 0), Stop("enough")) == [Publish(0, 0, 1)]


def test_an_agent_that_is_replaced_counts_the_updates_before_a_snapshot_anew() -> None:
    agent = machine(shards=1, **WAITS)
    run(agent, STEPPED, STEPPED, Install(0, 4, "replace"), SnapshotRequest(0, 0))
    assert (agent.due_in, run(agent, STEPPED, STEPPED)) == (3, [])
    assert run(agent, STEPPED) == [Publish(0, 0, 3)]


def test_a_mixed_arrival_is_pulled_to_once_by_what_came_with_it() -> None:
    agent = machine(shards=1, **WAITS)
    waiting = run(agent, Install(0, 1, "install", 0.6), Stepped(3))
    assert waiting == []
    assert run(agent, SnapshotRequest(0, 0)) == [Take(0, 1, "install", 0.6), Publish(0, 0, 3)]
    assert agent.pulls == ()
    assert run(agent, Install(0, 2, "replace", 0.6))[0] == Take(0, 2, "replace", 0.0), "a replacement is taken whole"


def test_stop_ends_a_hold_and_answers_what_was_deferred() -> None:
    agent = machine(shards=1, **HOLDS)
    assert run(agent, STEPPED, SnapshotRequest(0, 0), Stop("enough"), Stop("again")) == [Publish(0, 0, 1)]
    assert (agent.state, agent.stop_reason) == (STOPPING, "enough")
    holding = machine(shards=1, **HOLDS)
    run(holding, Stepped(3), Stop("enough"))
    assert holding.state == STOPPING


def test_stopping_agent_still_answers() -> None:
    agent = machine()
    run(agent, Stepped(2), Stop("enough"))
    assert run(agent, SnapshotRequest(1, 0), Begin(), STEPPED) == [Publish(1, 0, 2)]
    assert agent.state == STOPPING


def test_a_function_has_left_its_loop_when_it_knows_of_the_stop_and_goes_on_when_it_makes_updates() -> None:
    agent = machine()
    assert run(agent, StopSeen(), Stepped(5)) == []
    assert agent.function == "loop"
    run(agent, Stop("enough"))
    assert agent.function == "loop", "nobody but the agent knows yet"
    assert agent.handle(StopSeen(), 10.0) == (SayProgress(),)
    assert agent.handle(StopSeen(), 20.0) == (), "said already"
    assert agent.function == "left"
    run(agent, STEPPED)
    assert agent.function == "loop", "one update is the rest of accumulated gradients"
    run(agent, STEPPED)
    assert agent.function == "overrun"
    assert agent.handle(StopSeen(), 30.0) == (SayProgress(),)
    assert agent.function == "left"


def test_a_loop_that_never_asks_overruns_and_one_that_asks_in_vain_is_not_told_of_at_every_batch() -> None:
    agent = machine()
    run(agent, Stop("enough"), STEPPED)
    assert agent.function == "loop", "the batch in which the stop came"
    told = []
    for batch in range(8):
        run(agent, STEPPED)
        assert agent.function == "overrun"
        told += agent.handle(StopSeen(), 7.0 + batch / 4)
    assert told == 4 * [SayProgress()], "twice a second"


def test_where_the_function_is_after_its_return() -> None:
    agent = machine(shards=2, started=False)
    run(agent, Attached(local=True), Begin(), Stepped(2), Returned(b"r"))
    assert agent.function == "returned"
    run(agent, Stop("it was read"))
    assert agent.function == "ended"


def test_agent_that_is_stopped_before_attach_says_no_hello() -> None:
    agent = machine(started=False)
    assert run(agent, Stop("enough"), Attached(), STEPPED, Returned(b"x")) == [SayFinished(b"x")]


def test_last_word_closes_and_what_crosses_it_is_dropped() -> None:
    agent = machine()
    assert run(agent, Raised("ValueError: no", "Traceback")) == [SayFailed("ValueError: no", "Traceback")]
    assert run(agent, SnapshotRequest(1, 0), Install(0, 1, "install"), Stop("x"), LinkLost(), STEPPED) == []
    assert agent.state == CLOSED


def test_lost_link_ends_the_group() -> None:
    assert run(machine(), LinkLost()) == [EndGroup()]


@pytest.mark.parametrize("event", ["a word", Attached()])
def test_illegal_event_changes_nothing(event) -> None:
    agent = machine()
    with pytest.raises(LocalProtocolError, match="agent=7, state=TRAINING"):
        agent.handle(event, 5.0)
    assert agent.state == TRAINING


def test_an_illegal_move_is_a_bug_and_changes_nothing() -> None:
    agent = machine()
    with pytest.raises(LocalProtocolError, match="illegal move: agent=7 state TRAINING -> WAITING"):
        agent._become(WAITING, 5.0, "a bug")
    assert (agent.state, agent.state_since) == (TRAINING, 1.0)
    assert set(MOVES) == set(State)


def test_moves_are_logged_in_one_line_and_stamped(caplog: pytest.LogCaptureFixture) -> None:
    agent = machine(shards=1, **HOLDS)
    with caplog.at_level(logging.INFO, logger="mpca.agent"):
        agent.handle(Stepped(3), 12.5)
    assert caplog.messages == ['agent=7 state TRAINING -> HOLDING reason="3 of 3 updates are done"']
    assert agent.state_since == 12.5


def test_local_tensors_are_no_exchange_and_a_method_that_holds_answers_for_them_at_once() -> None:
    agent = machine(shards=2, started=False, hold_after=3)
    run(agent, Attached(local=True), Begin())
    assert run(agent, Stepped(1), SnapshotRequest(-9, 2), Install(2, 0, "replace")) == [
        Publish(-9, 2, 0),
        Take(2, 0, "replace"),
    ]
    assert run(agent, SnapshotRequest(0, 0)) == [], "the exchange itself waits for all three updates"
    assert run(agent, Stepped(2)) == [Publish(0, 0, 3)]


def test_an_agent_with_local_tensors_ends_when_it_is_told_to_and_is_served_until_then() -> None:
    agent = machine(shards=2, started=False, hold_after=3)
    run(agent, Attached(local=True), Begin(), Stepped(2), SnapshotRequest(0, 0))
    assert run(agent, Returned(b"r")) == [SayProgress(), Publish(0, 0, 2)]
    assert run(agent, SnapshotRequest(-9, 2), SnapshotRequest(1, 1)) == [Publish(-9, 2, 0), Publish(1, 1, 2)]
    assert run(agent, Stop("it was read")) == [SayFinished(b"r")]
    assert agent.state == CLOSED


def test_an_agent_that_was_told_to_stop_or_has_no_local_tensors_ends_at_once() -> None:
    for attached, first in ((Attached(local=True), Stop("enough")), (Attached(), Stepped(1))):
        agent = machine(shards=2, started=False, hold_after=3)
        run(agent, attached, Begin(), first)
        assert run(agent, Returned(b"r")) == [SayFinished(b"r")]


def test_before_the_first_step_a_model_may_be_cut_anew_and_hello_follows() -> None:
    agent = AgentMachine(0, 0, 3, AgentSide())
    assert agent.handle(Attached(), 0.0) == (SayHello(),)
    assert agent.handle(SnapshotRequest(-3, 0), 1.0) == (Publish(-3, 0, 0),)
    assert agent.handle(Cut(6), 2.0) == (CutAnew(6), SayHello())
    assert (agent.state, agent.shards, agent.installed) == (WAITING, 6, [-1] * 6)
    assert agent.handle(Begin(), 3.0) == ()
    agent.handle(Stepped(4), 4.0)
    assert agent.handle(SnapshotRequest(5, 5), 5.0) == (Publish(5, 5, 4),)


def test_an_agent_that_was_told_to_stop_is_not_cut_anew() -> None:
    agent = AgentMachine(0, 0, 3, AgentSide())
    agent.handle(Attached(), 0.0)
    agent.handle(Stop("enough"), 1.0)
    assert agent.handle(Cut(6), 2.0) == ()
