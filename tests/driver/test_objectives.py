"""Objectives as a user gives them: what is taken, what is refused, and when a run has reached them."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import pytest

from mpca.driver.events import StopRequested
from mpca.driver.objectives import DumpModel, Evaluate, Goals, MaxCycles, MaxTime, TargetError, judge
from mpca.errors import ConfigError

EVALUATE = Evaluate(lambda state: {"error": 0.5}, every="3s")


def test_each_objective_is_taken_by_its_kind_in_any_order() -> None:
    dump = DumpModel(interval="2min", keep=1)
    goals = Goals.of([dump, MaxCycles(60), EVALUATE, MaxTime("1min"), TargetError(0.25)])
    assert goals == Goals(target_error=0.25, max_time=60.0, max_cycles=60, evaluate=EVALUATE, dump=dump)
    assert (EVALUATE.every, dump.interval) == (3.0, 120.0)


def test_none_of_them_is_asked_for() -> None:
    assert Goals.of([]) == Goals() == Goals(0.0, None, None, None, None)
    assert Goals.of([MaxCycles(1)]).max_cycles == 1


def test_a_target_needs_somebody_who_evaluates() -> None:
    with pytest.raises(ConfigError, match="add Evaluate"):
        Goals.of([TargetError(0.1), MaxCycles(3)])


def test_two_of_a_kind_and_what_is_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="two objectives of one kind"):
        Goals.of([MaxCycles(1), MaxCycles(2)])
    with pytest.raises(ConfigError, match="not an objective: 3"):
        Goals.of([3])  # type: ignore[list-item]


@pytest.mark.parametrize("error", [0.0, 1.0, -0.5, float("nan")])
def test_a_target_is_a_share(error: float) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1"):
        TargetError(error)


def test_what_lasts_or_counts_nothing_is_refused() -> None:
    for make in (
        lambda: MaxTime(0),
        lambda: Evaluate(EVALUATE.function, every="0s"),
        lambda: DumpModel(interval=0),
        lambda: MaxTime(math.inf),
    ):
        with pytest.raises(ConfigError, match="longer than 0 s"):
            make()
    for make in (lambda: MaxCycles(0), lambda: DumpModel(keep=0)):
        with pytest.raises(ConfigError, match="at least 1"):
            make()


def test_a_run_ends_at_its_target_or_at_its_time_and_not_before() -> None:
    goals = Goals(target_error=0.25, max_time=60.0)
    assert goals.reached(None, None) is None
    assert goals.reached(0.26, 59.9) is None
    assert goals.reached(0.25, 1.0) == ("reached", "error 0.2500 is at or below the target of 0.2500")
    assert goals.reached(0.26, 60.0) == ("max_time", "60 s of training")
    assert Goals().reached(0.0, 1e9) is None, "nobody asked"


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        ("max_time", "raise objectives.max_time"),
        ("max_cycles", "raise objectives.max_cycles"),
        ("reached", "train for longer, or on more data"),
    ],
)
def test_a_run_without_a_commit_has_failed_whatever_limit_it_met(status: str, remedy: str) -> None:
    asked = StopRequested(status, "the limit")
    assert judge(asked, True, "cycle", "cycle 9: reduce shard 0") == asked
    why = f"no cycle was committed, so there is no joint model: the limit; {remedy}"
    assert judge(asked, False, "cycle", "") == StopRequested("failed", why, final=True)
    assert judge(asked, False, "exchange", "").reason == why.replace("no cycle", "no exchange")
    assert (
        ': the limit, while "cycle 0: freeze" was not answered yet; ' in judge(asked, False, "cycle", "cycle 0: freeze").reason
    )


@pytest.mark.parametrize("asked", [StopRequested("interrupted", "SIGINT"), StopRequested("failed", "a bug", final=True)])
def test_a_run_that_was_broken_off_says_that_and_not_that_it_had_no_commit(asked: StopRequested) -> None:
    assert judge(asked, False, "cycle", "begin") == asked


@pytest.mark.parametrize(
    "one", [TargetError(0.1), MaxTime(9.0), MaxCycles(9), EVALUATE, DumpModel(), Goals()], ids=lambda one: type(one).__name__
)
def test_what_was_checked_cannot_be_changed(one: object) -> None:
    for name in ("error", "seconds", "cycles", "every", "keep", "max_time"):
        if hasattr(one, name):
            with pytest.raises(FrozenInstanceError):
                setattr(one, name, -1)
