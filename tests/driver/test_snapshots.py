"""What executors answered to a freeze, fence by fence."""

from __future__ import annotations

from mpca.driver.snapshots import ShardSnapshots
from mpca.wire.agent_ref import AgentRef
from mpca.wire.orders import DEADLINE, Answer, Freeze, Frozen, Late


def yielded(agent: int, incarnation: int, finite: bool = True) -> Frozen:
    return Frozen(agent, incarnation, 4, 7, finite, 1.0, 1.0, 1.5)


def answer(executor: str, frozen: list[Frozen], late: dict[int, Late] | None = None, weight: float = 4.0) -> Answer:
    return Answer(executor, executor, frozen, late or {}, weight, 10.0, 11.0, 8, 2)


def test_a_fenced_yield_does_not_hide_those_behind_it() -> None:
    freeze = Freeze(5, 2, [AgentRef("e0", 0, 1), AgentRef("e0", 1, 0)])
    kept, late = ShardSnapshots.of(freeze, [answer("e0", [yielded(0, 0), yielded(1, 0)])], {"e0"})
    assert (kept.cycle, sorted(kept.frozen), kept.executor, late) == (5, [1], {1: "e0"}, {})


def test_everybody_that_was_asked_is_frozen_or_left_out_with_the_reason() -> None:
    freeze = Freeze(5, 2, [AgentRef("e0", 0, 0), AgentRef("e0", 1, 0), AgentRef("e1", 2, 3), AgentRef("e2", 3, 0)])
    answers = [answer("e0", [yielded(0, 0), yielded(1, 0, finite=False)]), answer("e1", [], {2: DEADLINE}, weight=0.0)]
    kept, late = ShardSnapshots.of(freeze, answers, {"e0", "e1"})
    assert sorted(kept.frozen) == [0, 1]
    assert kept.left_out == {1: "not finite", 2: DEADLINE.text, 3: "executor e2 lost"}
    assert late == {(2, 3): DEADLINE}
    assert kept.weights == {"e0": 4.0, "e1": 0.0}


def test_the_part_of_an_executor_that_is_gone_is_known_and_has_no_weight() -> None:
    freeze = Freeze(5, 2, [AgentRef("e0", 0, 0), AgentRef("e1", 1, 0)])
    kept, _ = ShardSnapshots.of(freeze, [answer("e0", [yielded(0, 0)]), answer("e1", [yielded(1, 0)])], {"e0"})
    assert sorted(kept.frozen) == [0, 1]
    assert kept.weights == {"e0": 4.0}
