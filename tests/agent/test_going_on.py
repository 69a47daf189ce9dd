"""What an agent's machine saves of itself, and where another process's machine goes on by it."""

from __future__ import annotations

from typing import Any

import pytest

from mpca.agent.events import STEPPED, Attached, Publish, SaveOwn, Take
from mpca.agent.state import HOLDING, STOPPING, TRAINING, WAITING, AgentMachine
from mpca.errors import LocalProtocolError
from mpca.methods import Method, from_dict
from mpca.wire.messages import Begin, Install, SaveState, SnapshotRequest, Stop

PAPER, SYNC = from_dict({"name": "mpca-paper"}), from_dict({"name": "sync", "tau": 3})


def machine(method: Method, *events: Any) -> AgentMachine:
    one = AgentMachine(0, 0, method.shards, method.agent_side)
    for event in (Attached(), Begin(), *events):
        one.handle(event, 1.0)
    return one


def after(one: AgentMachine, method: Method) -> AgentMachine:
    """Another process, which goes on there."""
    other = machine(method)
    other.go_on(one.own(5.0), 2.0)
    return other


def test_taus_versions_and_the_age_of_pulls_go_on() -> None:
    method = PAPER
    one = machine(method, *[Install(0, 1, "install", 0.1), STEPPED, STEPPED, SnapshotRequest(0, 0), STEPPED])
    other = after(one, method)
    assert other.updates == 0, "it has made none itself"
    assert (other.installed, other.pulls) == (one.installed, one.pulls)
    for each in (one, other):
        each.handle(STEPPED, 6.0)
    assert other.pulls == one.pulls, "the burst decays by the updates since version 1, whoever made them"
    for shard, tau in ((0, 2), (1, 4)):
        asked = SnapshotRequest(9 + shard, shard)
        assert one.handle(asked, 7.0) == other.handle(asked, 7.0) == (Publish(9 + shard, shard, tau),)


def test_one_that_held_goes_on_holding_and_hands_over_what_it_had() -> None:
    one = machine(SYNC, STEPPED, STEPPED, STEPPED)
    assert one.state is HOLDING
    other = after(one, SYNC)
    assert other.state is HOLDING
    assert other.updates == 3, "the driver asks nobody without an update"
    assert other.handle(SnapshotRequest(4, 0), 3.0) == (Publish(4, 0, 3),)
    assert other.handle(Install(0, 2, "install"), 4.0)[0] == Take(0, 2, "install")
    assert other.state is TRAINING


def test_what_was_handed_over_and_answered_by_no_joint_state_is_handed_over_again() -> None:
    """A run stops between the freeze and the sum: without this it has nothing to hand over, and would lose its optimiser."""
    one = machine(SYNC, STEPPED, STEPPED, STEPPED, SnapshotRequest(4, 0), Stop("SIGTERM"))
    assert one.state is STOPPING
    other = after(one, SYNC)
    assert other.state is HOLDING, "Stop ended the holding, and no more"
    assert other.handle(SnapshotRequest(4, 0), 3.0) == (Publish(4, 0, 3),)


def test_what_was_answered_is_not_handed_over_again() -> None:
    one = machine(SYNC, STEPPED, STEPPED, STEPPED, SnapshotRequest(4, 0), Install(0, 1, "install"), STEPPED)
    assert one.own(1.0)["taus"] == [1]


def test_a_question_that_is_repeated_is_not_answered_again() -> None:
    one = machine(PAPER, STEPPED)
    assert one.handle(SaveState(1), 2.0) == (SaveOwn(1),)
    assert one.handle(SaveState(1), 2.0) == ()


def test_one_that_has_not_begun_says_why_it_is_not_saved() -> None:
    one = AgentMachine(0, 0, PAPER.shards, PAPER.agent_side)
    one.handle(Attached(), 0.0)
    assert one.state is WAITING
    assert one.handle(SaveState(1), 2.0) == (SaveOwn(1, "the agent is WAITING"),)


def test_one_whose_model_is_being_replaced_says_so() -> None:
    one = machine(PAPER, STEPPED, Install(0, 5, "replace"))
    assert one.handle(SaveState(1), 2.0) == (SaveOwn(1, "the joint model is replacing the agent's own"),)


@pytest.mark.parametrize("shards", [3, 4])
def test_it_goes_on_before_its_first_update_and_with_as_many_shards_alone(shards: int) -> None:
    own = machine(PAPER).own(1.0)
    other = AgentMachine(0, 0, shards, PAPER.agent_side)
    for event in (Attached(), Begin(), *([STEPPED] if shards == 3 else [])):
        other.handle(event, 1.0)
    with pytest.raises(LocalProtocolError, match=r"^it cannot go on now: agent=0, state=TRAINING"):
        other.go_on(own, 2.0)
