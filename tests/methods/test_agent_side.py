"""How and when an agent applies a joint state: what is refused, and who waits."""

from __future__ import annotations

from typing import Any

import pytest

from mpca.algorithm import Outer
from mpca.methods import AgentSide, How, When


@pytest.mark.parametrize("how", [How.CORRECT, How.EAGER])
def test_what_answers_a_snapshot_is_refused_after_the_next_one(how: How) -> None:
    with pytest.raises(ValueError, match="must be applied before the next snapshot"):
        AgentSide(how, When.AFTER_SNAPSHOT)


@pytest.mark.parametrize("values", [{"how": How.EAGER}, {"outer": Outer(0.7, 0.9)}], ids=str)
def test_an_outer_optimiser_is_refused_without_eager_updates_and_these_without_one(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="an outer optimiser is given with"):
        AgentSide(when=When.ON_ARRIVAL, **values)


def test_a_negative_number_of_updates_is_refused() -> None:
    with pytest.raises(ValueError, match="hold_after must be 0 or more: -1"):
        AgentSide(hold_after=-1)


@pytest.mark.parametrize("values", [{"hold_s": -1.0}, {"hold_s": 2.0, "hold_after": 2}], ids=str)
def test_a_hold_after_a_time_is_refused_below_0_and_with_one_after_updates(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="hold_s must be 0 or more, and 0 with hold_after"):
        AgentSide(**values)


def test_who_holds() -> None:
    assert [one.holds for one in (AgentSide(), AgentSide(hold_after=1), AgentSide(hold_s=0.1))] == [False, True, True]


@pytest.mark.parametrize("values", [{"snapshot_after": -1}, {"snapshot_after": 2, "hold_after": 2}], ids=str)
def test_updates_before_a_snapshot_are_refused_below_0_and_with_a_hold(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="snapshot_after must be 0 or more, and 0 with hold_after"):
        AgentSide(**values)


@pytest.mark.parametrize(
    ("how", "when", "waits"),
    [
        (How.PULL, When.BEFORE_SNAPSHOT, True),
        (How.PULL, When.AFTER_SNAPSHOT, True),
        (How.PULL, When.ON_ARRIVAL, False),
        (How.REPLACE, When.ON_ARRIVAL, False),
        (How.MIX, When.BEFORE_SNAPSHOT, True),
        (How.MIX, When.ON_ARRIVAL, False),
        (How.CORRECT, When.BEFORE_SNAPSHOT, True),
        (How.CORRECT, When.ON_ARRIVAL, True),
        (How.EAGER, When.ON_ARRIVAL, True),
    ],
)
def test_a_snapshot_waits_for_what_it_must_contain_or_answer(how: How, when: When, waits: bool) -> None:
    outer = Outer(0.7, 0.9) if how is How.EAGER else None
    assert AgentSide(how, when, outer=outer).waits_for_shard is waits


def test_without_a_schedule_the_pull_is_the_drivers() -> None:
    assert [AgentSide().penalty(0.1, updates) for updates in (0, 7, None)] == [0.1, 0.1, 0.1]
