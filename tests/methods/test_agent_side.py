"""How and when an agent applies a joint state: what is refused, and who waits."""

from __future__ import annotations

import pytest

from mpca.methods import AgentSide, How, When


def test_a_correction_after_the_snapshot_is_refused() -> None:
    with pytest.raises(ValueError, match="must be applied before the next snapshot"):
        AgentSide(How.CORRECT, When.AFTER_SNAPSHOT)


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
    ],
)
def test_a_snapshot_waits_for_what_it_must_contain_or_answer(how: How, when: When, waits: bool) -> None:
    assert AgentSide(how, when).waits_for_shard is waits


def test_without_a_schedule_the_pull_is_the_drivers() -> None:
    assert [AgentSide().penalty(0.1, updates) for updates in (0, 7, None)] == [0.1, 0.1, 0.1]
