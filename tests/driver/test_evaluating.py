"""What follows when the evaluator ends: again twice, then never more; a run that nothing else would end fails."""

from __future__ import annotations

import pytest

from mpca.driver.evaluating import EvaluatorDied, EvaluatorRule, FailRun, StartAgain, StopEvaluating
from mpca.driver.objectives import EarlyStopping, Evaluate, Goals, KeepBest, Target

EVALUATE = Evaluate(lambda state: {})
TARGET = Target("error", at_most=0.1)
BESIDE = Goals(max_time=60.0, evaluate=EVALUATE)
DIED = EvaluatorDied("it ended: exit_code=-9 (SIGKILL)", 4)
THREE = "the evaluator ended 3 times in 10 minutes, the last time: it ended: exit_code=-9 (SIGKILL)"


def test_it_is_started_again_twice_and_then_stopped() -> None:
    rule = EvaluatorRule(BESIDE)
    assert rule.handle(DIED, 0.0) == [StartAgain(1.0)]
    assert rule.handle(DIED, 5.0) == [StartAgain(1.0)]
    assert rule.state == "ANSWERING"
    assert rule.handle(DIED, 599.0) == [StopEvaluating(THREE)]
    assert rule.state == "STOPPED"


def test_deaths_of_long_ago_do_not_count() -> None:
    rule = EvaluatorRule(BESIDE)
    for now in (0.0, 5.0, 600.0, 605.0, 1200.0, 1205.0, 99_999.0):
        assert rule.handle(DIED, now) == [StartAgain(1.0)], now
    assert rule.state == "ANSWERING"


def test_the_third_within_ten_minutes_counts_also_after_older_ones() -> None:
    rule = EvaluatorRule(BESIDE)
    for now in (0.0, 500.0, 700.0):
        assert rule.handle(DIED, now) == [StartAgain(1.0)]
    assert rule.handle(DIED, 1050.0) == [StopEvaluating(THREE)]


@pytest.mark.parametrize(
    ("goals", "fails"),
    [
        (Goals((TARGET,), evaluate=EVALUATE), True),
        (Goals((TARGET,), evaluate=EVALUATE, keep_best=KeepBest("error")), True),
        (Goals((TARGET,), evaluate=EVALUATE, early_stopping=EarlyStopping("loss")), True),
        (
            Goals(evaluate=EVALUATE, early_stopping=EarlyStopping("loss")),
            False,
        ),  # a brake: the train functions return without it
        (Goals((TARGET,), max_time=60.0, evaluate=EVALUATE), False),
        (Goals((TARGET,), max_cycles=9, evaluate=EVALUATE), False),
        (Goals(evaluate=EVALUATE), False),  # ends when the train functions return, or by a signal
        (BESIDE, False),
    ],
)
def test_the_run_fails_only_when_nothing_else_can_end_it(goals: Goals, fails: bool) -> None:
    rule = EvaluatorRule(goals)
    rule.handle(DIED, 0.0)
    rule.handle(DIED, 0.0)
    expected: list = [StopEvaluating(THREE)]
    if fails:
        expected.append(FailRun(f"{THREE}; nothing else would end the run, which was to reach error <= 0.1"))
    assert rule.handle(DIED, 1.0) == expected


def test_one_that_was_stopped_cannot_die() -> None:
    rule = EvaluatorRule(BESIDE)
    for _ in range(3):
        rule.handle(DIED, 0.0)
    with pytest.raises(AssertionError, match="in state STOPPED"):
        rule.handle(DIED, 1.0)
