"""Objectives as a user gives them: what is taken, what is refused, and when a run has reached them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pytest

from mpca.config.sections import ObjectivesConfig
from mpca.driver.events import StopRequested
from mpca.driver.objectives import (
    Best,
    DumpModel,
    EarlyStopping,
    Evaluate,
    Goals,
    KeepBest,
    MaxCycles,
    MaxTime,
    Objective,
    Target,
    judge,
    metric_goals,
)
from mpca.errors import ConfigError

EVALUATE = Evaluate(lambda state: {"error": 0.5}, every="3s")


def test_each_objective_is_taken_by_its_kind_in_any_order() -> None:
    dump = DumpModel(interval="2min", keep=1)
    target, other = Target("error", at_most=0.25), Target("accuracy", at_least=0.9)
    stop, keep = EarlyStopping("loss"), KeepBest("loss")
    goals = Goals.of([dump, keep, MaxCycles(60), target, EVALUATE, MaxTime("1min"), stop, other])
    assert goals == Goals((target, other), 60.0, 60, EVALUATE, dump, stop, keep)
    assert (goals.target_error, goals.by_metric) == (0.25, [target, other, stop, keep])
    assert (EVALUATE.every, dump.interval) == (3.0, 120.0)


def test_none_of_them_is_asked_for() -> None:
    assert Goals.of([]) == Goals() == Goals((), None, None, None, None, None, None)
    assert (Goals().target_error, Goals().by_metric) == (0.0, [])
    assert Goals.of([MaxCycles(1)]).max_cycles == 1


@pytest.mark.parametrize("goal", [Target("error", at_most=0.1), EarlyStopping("loss"), KeepBest("loss")])
def test_a_goal_by_a_metric_needs_somebody_who_evaluates(goal: Objective) -> None:
    with pytest.raises(ConfigError, match=rf"^{type(goal).__name__} needs an evaluation: add Evaluate"):
        Goals.of([goal, MaxCycles(3)])


def test_two_of_a_kind_and_what_is_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="two objectives of one kind"):
        Goals.of([MaxCycles(1), MaxCycles(2)])
    with pytest.raises(ConfigError, match="not an objective: 3"):
        Goals.of([3])  # type: ignore[list-item]


METRIC = "Target: a metric is the name of a number that the evaluation returns, without a comma,"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Target("accuracy"), "Target('accuracy'): give one bound, at_least or at_most"),
        (lambda: Target("accuracy", 0.9, 0.99), "Target('accuracy'): give one bound, at_least or at_most"),
        (lambda: Target("accuracy", math.nan), "Target('accuracy'): the bound must be a finite number, got nan"),
        (lambda: Target("accuracy", "high"), "Target('accuracy'): the bound must be a finite number, got 'high'"),
        (
            lambda: Target("accuracy", np.float32(math.inf)),
            "Target('accuracy'): the bound must be a finite number, got np.float32(inf)",
        ),
        (lambda: Target("size", 10**5000), "Target('size'): the bound must be a finite number, got too many digits"),
        (lambda: Target(10**5000, 1), f"{METRIC} got too many digits"),
        (
            lambda: EarlyStopping("loss", -(10**5000)),
            "EarlyStopping: patience is a number of evaluations, 1 or more, got too many digits",
        ),
        (
            lambda: EarlyStopping("loss", mode=10**5000),  # type: ignore[arg-type]
            'EarlyStopping: say whether a smaller loss is better, or a larger one: mode="min" or mode="max", '
            "got too many digits",
        ),
        (
            lambda: Target("error", at_least=10**5000),
            "Target('error'): the bound must be a finite number, got too many digits",
        ),
        (lambda: Target("size", 10**400), f"Target('size'): the bound must be a finite number, got 1{'0' * 59}"),
        (lambda: Target("accuracy", True), "Target('accuracy'): the bound must be a finite number, got True"),
        (
            lambda: Target(0.97, 1),
            f"{METRIC} got 0.97",
        ),
        (
            lambda: KeepBest("a,b"),
            "KeepBest: a metric is the name of a number that the evaluation returns, without a comma, got 'a,b'",
        ),
        (
            lambda: KeepBest("f1"),
            'KeepBest: say whether a smaller f1 is better, or a larger one: mode="min" or mode="max", got None',
        ),
        (
            lambda: EarlyStopping("loss", mode="least"),
            'EarlyStopping: say whether a smaller loss is better, or a larger one: mode="min" or mode="max", got \'least\'',
        ),
        (lambda: EarlyStopping("loss", 0), "EarlyStopping: patience is a number of evaluations, 1 or more, got 0"),
        (lambda: EarlyStopping("loss", 2.5), "EarlyStopping: patience is a number of evaluations, 1 or more, got 2.5"),
        *(
            (
                lambda bound=bound: Target("error", at_most=bound),
                f'Target("error"): a share of wrong answers; at_most must lie between 0 and 1, got {bound}',
            )
            for bound in (0.0, 1.0, -0.5)
        ),
        (
            lambda: Target("error", at_least=0.5),
            'Target("error"): a share of wrong answers; at_most must lie between 0 and 1, got 0.5',
        ),
        (
            lambda: Goals.of([EVALUATE, Target("accuracy", at_least=0.97), Target("accuracy", at_most=0.9)]),
            "two targets for accuracy: accuracy >= 0.97 and accuracy <= 0.9; leave one out",
        ),
        (
            lambda: Goals.of([EVALUATE, Target("f1", at_most=0.5), KeepBest("f1", mode="max")]),
            "goals contradict: for Target a smaller f1 is better, for KeepBest a larger one",
        ),
        (
            lambda: Goals.of([EVALUATE, KeepBest("f1", mode="min"), EarlyStopping("f1", mode="max")]),
            "goals contradict: for EarlyStopping a larger f1 is better, for KeepBest a smaller one",
        ),
        (
            lambda: Target.parse("accuracy > 0.9"),
            'not a target: \'accuracy > 0.9\'; write it as "loss <= 0.1", or ">=" for the other side',
        ),
        (
            lambda: Target.parse("accuracy >= high"),
            'not a target: \'accuracy >= high\'; write it as "loss <= 0.1", or ">=" for the other side',
        ),
    ],
)
def test_goals_that_cannot_be_are_refused_in_a_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make()
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("bound", "plain"),
    [(np.float64(0.97), "0.97"), (np.float32(0.5), "0.5"), (np.int64(20), "20"), (Fraction(1, 4), "0.25"), (-7, "-7")],
    ids=lambda one: f"{type(one).__name__}",
)
@pytest.mark.parametrize("side", ["at_least", "at_most"])
def test_a_bound_of_any_type_of_number_becomes_a_plain_one(bound: float, plain: str, side: str) -> None:
    target = Target("f1", **{side: bound})
    assert type(target.bound) in (int, float)
    assert str(target) == f"f1 {'>=' if side == 'at_least' else '<='} {plain}"
    assert Target.parse(str(target)) == target
    assert target.met({"f1": bound})


def test_goals_survive_a_configuration() -> None:
    targets = Target("error", at_most=0.1), Target("val f1", at_least=1e-7), Target("x >= y", at_most=-3.5)
    config = ObjectivesConfig(
        target_error=0.1, targets=", ".join(map(str, targets[1:])), early_stopping="max min f1", patience=3, keep_best="loss"
    )
    assert metric_goals(config) == {
        "targets": targets,
        "early_stopping": EarlyStopping("min f1", 3, "max"),
        "keep_best": KeepBest("loss", "min"),
    }
    assert metric_goals(ObjectivesConfig()) == {"targets": ()}


@pytest.mark.parametrize("key", ["early_stopping", "keep_best"])
def test_a_goal_of_a_configuration_is_read_with_any_blanks_and_refused_by_its_key(key: str) -> None:
    goal = metric_goals(ObjectivesConfig(**{key: " max   val f1 "}))[key]
    assert (goal.metric, goal.mode) == ("val f1", "max")
    for text, name in (("f1", "f1"), ("most f1", "most f1"), ("max", "f1"), ("max loss, min f1", "f1")):
        with pytest.raises(ConfigError) as refused:
            metric_goals(ObjectivesConfig(**{key: text}))
        assert str(refused.value) == f'objectives.{key} = {text!r}: write it as "max {name}" or "min {name}", with one metric'


def test_the_best_is_that_of_numbers_and_an_evaluation_without_the_metric_does_not_count() -> None:
    best = Best(EarlyStopping("f1", mode="max"))
    told = [best.take({"f1": value}) for value in (math.nan, 0.5, 0.5, 0.7, math.inf)]
    assert (told, best.value, best.since) == ([False, True, False, True, False], 0.7, 1)
    assert not best.take({"loss": 1.0})
    assert best.since == 1
    assert [Best(KeepBest("loss")).take({"loss": value}) for value in (0.5, -math.inf)] == [True, False]


def test_a_run_ends_when_its_patience_does() -> None:
    stop = EarlyStopping("loss", patience=2)
    goals, best = Goals.of([stop, EVALUATE]), Best(stop)
    for loss in (0.5, 0.25, 0.3):
        best.take({"loss": loss})
        assert goals.reached({"loss": loss}, best, 1.0) is None
    best.take({"loss": math.nan})
    said = "no better loss in 2 evaluations; the best was 0.25"
    assert goals.reached({"loss": math.nan}, best, 1.0) == ("early_stopping", said)
    never = Best(stop)
    for _ in range(2):
        never.take({"loss": math.nan})
    assert goals.reached({}, never, 1.0) == ("early_stopping", "no better loss in 2 evaluations; none was a number")


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
    goals = Goals((Target("error", at_most=0.25), Target("accuracy", at_least=0.975)), max_time=60.0, evaluate=EVALUATE)
    assert goals.reached(None, None, None) is None
    assert goals.reached({"error": 0.26, "accuracy": 0.97}, None, 59.9) is None
    assert goals.reached({"error": math.nan}, None, 59.9) is None
    assert goals.reached({"error": 0.25}, None, 1.0) == ("reached", "error 0.2500 is at or below the target of 0.2500")
    assert goals.reached({"accuracy": 0.98}, None, 1.0) == ("reached", "accuracy 0.98 is at or above the target of 0.975")
    assert goals.reached({"error": 0.26}, None, 60.0) == ("max_time", "60 s of training")
    assert Goals().reached({"error": 0.0}, None, 1e9) is None, "nobody asked"


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        ("max_time", "raise objectives.max_time"),
        ("max_cycles", "raise objectives.max_cycles"),
        ("early_stopping", "evaluate less often, or have more patience"),
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
    "one",
    [Target("error", at_most=0.1), MaxTime(9.0), MaxCycles(9), EVALUATE, DumpModel(), Goals()],
    ids=lambda one: type(one).__name__,
)
def test_what_was_checked_cannot_be_changed(one: object) -> None:
    for name in ("metric", "seconds", "cycles", "every", "keep", "max_time"):
        if hasattr(one, name):
            with pytest.raises(FrozenInstanceError):
                setattr(one, name, -1)
