"""An agent that asks by itself: events in, the exact instructions out; and what it sends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mpca.agent.events import STEPPED, Ask, Attached, LinkLost, Publish, Release, ResetOptimizer, Returned, Stepped, Take
from mpca.agent.outbox import Outbox
from mpca.agent.state import ASKING, CLOSED, STOPPING, TRAINING, AgentMachine
from mpca.methods import AgentSide, How, Sends, Threshold, When
from mpca.wire.messages import Begin, Install, SnapshotRequest, Stop


def machine(shards: int = 1, local: bool = False, **side: Any) -> AgentMachine:
    values: dict[str, Any] = {"how": How.MIX, "when": When.ON_ARRIVAL, "asks_after": 2, **side}
    made = AgentMachine(agent=7, incarnation=1, shards=shards, side=AgentSide(**values))
    run(made, Attached(local=local), Begin())
    return made


def run(machine: AgentMachine, *events: Any) -> list[Any]:
    return [one for now, event in enumerate(events) for one in machine.handle(event, float(now))]


# ---- when it asks ---------------------------------------------------------------------------------------------------------


def test_it_asks_when_its_updates_are_made_and_waits_for_the_answer() -> None:
    agent = machine()
    assert (run(agent, STEPPED), agent.due_in) == ([], 1)
    assert (run(agent, STEPPED), agent.state) == ([Ask(1, 0, 2, -1)], ASKING)
    assert (run(agent, Install(0, 5, "install", 0.3)), agent.state) == ([Take(0, 5, "install", 0.3)], TRAINING)
    assert run(agent, STEPPED, STEPPED) == [Ask(2, 0, 2, 5)]


def test_the_shards_go_in_turn_and_each_has_its_tau() -> None:
    agent, asked = machine(shards=3), []
    for version in range(1, 6):
        asked += run(agent, STEPPED, STEPPED)
        run(agent, Install(asked[-1].shard, version, "install", 0.5))
    assert asked == [Ask(1, 0, 2, -1), Ask(2, 1, 4, -1), Ask(3, 2, 6, -1), Ask(4, 0, 6, 1), Ask(5, 1, 6, 2)]


def test_it_asks_earlier_when_its_losses_add_up_to_more_than_the_cut() -> None:
    agent = machine(asks_after=100, asks_at_loss=3.0)
    assert run(agent, Stepped(1, 2.0), Stepped(1, 1.0)) == []
    assert run(agent, Stepped(1, 0.5)) == [Ask(1, 0, 3, -1)]
    run(agent, Install(0, 1, "install", 0.5))
    assert run(agent, *[Stepped(1, 1.0)] * 3) == [], "the sum begins anew"
    assert run(agent, Stepped(1, float("nan")), *[Stepped(1, 9.0)] * 95) == []
    assert run(agent, STEPPED) == [Ask(2, 0, 100, 1)]


def test_what_replaces_its_parameters_counts_as_an_answer_and_its_updates_begin_anew() -> None:
    agent = machine(shards=2)
    run(agent, STEPPED, STEPPED)
    assert (run(agent, Install(0, 4, "replace")), agent.state) == ([], ASKING)
    replaced = [Take(0, 4, "replace"), Take(1, 4, "replace"), ResetOptimizer()]
    assert (run(agent, Install(1, 4, "replace")), agent.state) == (replaced, TRAINING)
    assert run(agent, STEPPED, STEPPED) == [Ask(2, 1, 2, 4)]


def test_an_answer_of_the_version_that_it_has_is_taken() -> None:
    agent = machine(how=How.REPLACE)
    run(agent, STEPPED, STEPPED, Install(0, 1, "install"), STEPPED, STEPPED)
    assert (run(agent, Install(0, 1, "install")), agent.state) == ([Take(0, 1, "install")], TRAINING)


# ---- what comes while it waits ----------------------------------------------------------------------------------------------


def test_a_request_waits_for_the_slot_that_the_executor_has() -> None:
    agent = machine(local=True)
    run(agent, STEPPED, STEPPED)
    assert run(agent, SnapshotRequest(-9, 1)) == []
    assert run(agent, Install(0, 1, "install", 0.5)) == [Take(0, 1, "install", 0.5), Publish(-9, 1, 0)]
    assert run(agent, SnapshotRequest(-10, 1)) == [Publish(-10, 1, 0)], "there is no wait"


def test_stop_ends_the_waiting_and_a_late_answer_is_not_taken() -> None:
    agent = machine(local=True)
    run(agent, STEPPED, STEPPED, SnapshotRequest(-9, 1))
    assert (run(agent, Stop("enough")), agent.state) == ([Publish(-9, 1, 0)], STOPPING)
    assert run(agent, Install(0, 1, "install", 0.5)) == [Release(0, 1, "install")]
    assert run(agent, STEPPED, STEPPED) == [], "it asks no more"


def test_an_answer_to_nothing_is_not_taken() -> None:
    assert run(machine(shards=2), Install(0, 1, "install", 0.5)) == [Release(0, 1, "install")]


def test_an_agent_whose_function_returned_does_not_ask() -> None:
    agent = machine(local=True)
    run(agent, STEPPED, Returned(b""))
    assert run(agent, STEPPED) == []


def test_the_executor_may_go_while_it_waits() -> None:
    agent = machine()
    run(agent, STEPPED, STEPPED, LinkLost())
    assert agent.state is CLOSED


# ---- what it sends ------------------------------------------------------------------------------------------------------


def outbox(x0: np.ndarray, parameters: int, sends: Sends, threshold: Threshold | None = None) -> Outbox:
    side = AgentSide(How.REPLACE, When.ON_ARRIVAL, asks_after=1, sends=sends, threshold=threshold)
    bounds = [0, 2, x0.size]

    def read(shard: int, out: np.ndarray) -> None:
        out[:] = x0[bounds[shard] : bounds[shard + 1]]

    return Outbox(side, [*bounds, x0.size + 5], parameters, 2, read)


def filled(box: Outbox, shard: int, *values: float) -> list[float]:
    out = np.float32(values)
    box.fill(shard, out)
    return out.tolist()


def test_a_change_is_since_the_joint_state_that_it_took_last_and_buffers_are_as_they_are() -> None:
    box = outbox(np.float32([1, 2, 3, 4]), 3, Sends.CHANGE)
    assert filled(box, 1, 5, 9) == [2.0, 9.0]
    assert filled(box, 1, 6, 9) == [3.0, 9.0]
    box.installed(1, np.float32([5, 8]), "install")
    box.installed(2, np.float32([0, 0]), "replace")  # local tensors
    assert filled(box, 1, 6, 7) == [1.0, 7.0]
    assert filled(box, 0, 1, 2) == [0.0, 0.0]


def test_a_state_is_sent_as_it_is() -> None:
    assert filled(outbox(np.float32([1, 2, 3, 4]), 4, Sends.STATE), 0, 5, 9) == [5.0, 9.0]


vectors = arrays.arrays(np.float32, 4, elements=st.integers(-64, 64).map(lambda n: n / 8))


@given(st.lists(vectors, min_size=1, max_size=12), st.sampled_from([0.125, 1.0, 4.0]))
def test_what_was_sent_and_the_residual_are_the_sum_of_the_updates(updates: list[np.ndarray], threshold: float) -> None:
    """In eighths, so that the sums are exact."""
    box = outbox(np.zeros(4, np.float32), 4, Sends.THRESHOLD, Threshold(threshold))
    joint, sent = np.zeros(4, np.float32), np.zeros(4, np.float32)
    for update in updates:
        for shard, span in enumerate((slice(0, 2), slice(2, 4))):
            out = joint[span] + update[span]
            box.fill(shard, out)
            assert set(np.abs(out)) <= {0.0, threshold}
            sent[span] += out
            joint[span] += out
            box.installed(shard, joint[span], "install")
    residual = np.concatenate(box._residual)
    np.testing.assert_array_equal(sent + residual, np.sum(updates, axis=0, dtype=np.float32))


def test_the_threshold_falls_when_little_is_sent_and_grows_when_much_is() -> None:
    box = outbox(np.zeros(4, np.float32), 4, Sends.THRESHOLD, Threshold(1.0, least=0.4, most=0.6, decay=0.5))
    assert filled(box, 0, 0.75, 0.25) == [0.0, 0.0]
    box.installed(0, np.float32([0, 0]), "install")
    assert filled(box, 0, 0, 0.5) == [0.5, 0.5], "what was left is sent by the lower threshold"
    box.installed(0, np.float32([0, 0]), "install")
    assert filled(box, 0, 0, 0.8) == [0.0, 1.0]


def test_a_residual_is_cut_off_at_so_many_thresholds_and_a_replacement_owes_nothing() -> None:
    box = outbox(np.zeros(4, np.float32), 4, Sends.THRESHOLD, Threshold(1.0, clip=2.0))
    assert filled(box, 0, 9, float("nan"))[0] == 1.0
    np.testing.assert_array_equal(box._residual[0], [2.0, float("nan")])
    box.installed(0, np.float32([0, 0]), "replace")
    assert filled(box, 0, 0, 1) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("side", "said"),
    [
        ({"asks_after": 2, "hold_after": 2}, "asks_after must be 0 or more"),
        ({"asks_after": -1}, "asks_after must be 0 or more"),
        ({"sends": Sends.CHANGE}, "only for an agent that asks by itself"),
        ({"asks_at_loss": 1.0}, "only for an agent that asks by itself"),
        ({"asks_after": 1, "how": How.MIX, "sends": Sends.CHANGE}, "sends needs How.REPLACE"),
        ({"asks_after": 1, "how": How.REPLACE, "sends": Sends.THRESHOLD}, "a threshold is given with"),
    ],
)
def test_what_does_not_go_together_is_refused(side: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        AgentSide(**side)
