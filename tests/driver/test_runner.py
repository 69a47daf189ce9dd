"""The shell of the driver: what it asks of an agent's hello before its state machine hears of it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from mpca import methods
from mpca.clock import ManualClock
from mpca.driver.cluster import AgentSpec
from mpca.driver.evaluating import EvaluatorDied
from mpca.driver.events import AgentHello, ExecutorReady, StopRequested
from mpca.driver.instructions import Write
from mpca.driver.joint import JointModel
from mpca.driver.objectives import EarlyStopping, Evaluate, Goals, KeepBest, MaxTime, Objective, Target
from mpca.driver.runner import STATUS_EVERY_S, Runner
from mpca.driver.status import RunStatus
from mpca.errors import ConfigError, EnvironmentRefused
from mpca.records import MemorySink, to_json
from tests.driver.support import Machine, hello, progress

OURS = {"python": "3.11.7", "torch": "2.15.0", "mpca": "0.1.0", "numpy": "2.1.0"}


class Idle:
    """A cluster of which no more is asked than memory: that is before the second hello."""

    def room(self, elements: int) -> np.ndarray:
        return np.empty(elements, np.float32)


def said(**versions: str) -> AgentHello:
    """The first hello of two, from agent 0 on e0."""
    event = hello(0)
    return replace(
        event, hello=replace(event.hello, **{**{name: OURS[name] for name in ("python", "torch", "mpca")}, **versions})
    )


def hears(event: AgentHello, software: dict[str, str] = OURS, restore: Callable[[JointModel], None] | None = None) -> Runner:
    by_hand = Machine(agents=2, resumed=restore is not None)
    for executor in ("e0", "e1"):
        by_hand.tell(ExecutorReady(executor, "host", 2))
    runner = Runner(
        by_hand.machine,
        Idle(),
        methods.from_dict({"name": "mpca"}),
        AgentSpec("python", {}, {}),
        MemorySink(),
        ManualClock(),
        software=software,
        restore=restore,
    )
    del restore
    runner.step([event])
    return runner


def test_what_a_joint_model_was_filled_from_is_let_go() -> None:
    class Backup:
        def restore(self, joint: JointModel) -> None:
            joint.restore(np.arange(6, dtype=np.float32), np.zeros(6, np.float32), [2, 2, 1])

    backup = Backup()
    there = weakref.ref(backup)
    runner = hears(said(), restore=backup.restore)
    assert runner.joint is not None
    assert runner.joint.versions() == [2, 2, 1]
    del backup
    gc.collect()
    assert there() is None, "it has two models, and a run may last for weeks"


@pytest.mark.parametrize(
    "versions",
    [
        {},
        {"python": "3.11.2"},  # the last number is a correction
        {"torch": "2.15.0+cu132"},  # how it was built
        {"torch": "2.15.0+cpu"},
    ],
)
def test_the_same_environment_is_let_in(versions: dict[str, str]) -> None:
    assert hears(said(**versions)).joint is not None


@pytest.mark.parametrize(
    ("what", "theirs"),
    [
        ("python", "3.10.7"),
        ("python", "3.1.7"),
        ("python", "2.11.7"),
        ("torch", "2.14.0"),
        ("torch", "2.15.1+cu132"),
        ("torch", "1.15.0"),
        ("mpca", "0.1.1"),
        ("mpca", "0.2.0"),
    ],
)
def test_another_is_refused_with_both_versions_and_where_it_is(what: str, theirs: str) -> None:
    with pytest.raises(EnvironmentRefused) as refusal:
        hears(said(**{what: theirs}))
    assert str(refusal.value) == (
        f"{what} differs: the driver has {OURS[what]}, agent 0 on host host0 (executor e0) has {theirs}; "
        "use one environment everywhere, or set cluster.python"
    )


def test_what_the_driver_has_not_installed_is_not_compared() -> None:
    """A gateway host without torch starts agents that have it."""
    ours = {name: version for name, version in OURS.items() if name != "torch"}
    assert hears(said(torch="1.0"), ours).joint is not None


def shown(goals: Goals, **more: float) -> tuple[Machine, ManualClock, Runner, list[RunStatus]]:
    """A runner over a run of two agents that have said hello, but not begun, and what it shows."""
    by_hand, clock, seen = Machine(agents=2, goals=goals), ManualClock(), []
    by_hand.training()
    by_hand.machine.run.began = None
    runner = Runner(
        by_hand.machine,
        Idle(),
        methods.from_dict({"name": "mpca"}),
        AgentSpec("python", {}, {}),
        MemorySink(),
        clock,
        on_status=seen.append,
        **more,
    )
    return by_hand, clock, runner, seen


def test_the_time_that_is_left_counts_from_when_training_began_and_never_falls_below_zero() -> None:
    by_hand, clock, runner, _ = shown(Goals.of([MaxTime("60s")]))
    clock.advance(7.0)
    assert runner.status().seconds_left is None, "training has not begun"
    by_hand.machine.run.began = clock.now()
    clock.advance(20.0)
    assert runner.status().seconds_left == 40.0
    clock.advance(39.5)
    assert runner.status().seconds_left == 0.5
    clock.advance(9.0)
    assert runner.status().seconds_left == 0.0
    by_hand, clock, runner, _ = shown(Goals())
    by_hand.machine.run.began = clock.now()
    assert runner.status().seconds_left is None, "no such limit"


def test_a_later_attempt_goes_on_with_the_time_that_the_earlier_ones_trained() -> None:
    by_hand, clock, runner, _ = shown(Goals.of([MaxTime("60s")]), earlier_s=25.0, earlier_t=31.0)
    clock.advance(2.0)
    assert (runner.trained_s, runner.status().seconds_left) == (25.0, 35.0)
    assert runner.status().seconds == 33.0
    by_hand.machine.run.began = clock.now()
    clock.advance(4.0)
    assert (runner.trained_s, runner.status().seconds_left) == (29.0, 31.0)


def test_the_time_of_training_ends_with_the_request_to_stop() -> None:
    by_hand, clock, runner, _ = shown(Goals.of([MaxTime("60s")]), earlier_s=25.0)
    by_hand.machine.run.began = clock.now()
    clock.advance(4.0)
    by_hand.tell(StopRequested("max_cycles", "9 cycles"), at=clock.now())
    clock.advance(200.0)
    assert runner.trained_s == 29.0


class _Dies:
    busy = False
    closed = 0

    def poll(self) -> list[EvaluatorDied]:
        return [EvaluatorDied("killed", 4)]

    def close(self) -> None:
        self.closed += 1


def test_an_evaluator_that_ends_again_and_again_changes_nothing_of_how_a_run_ends_that_stops_already() -> None:
    by_hand, clock, runner, _ = shown(Goals.of([Target("error", at_most=0.1), Evaluate(print)]))
    by_hand.tell(StopRequested("reached", "error 0.09"), at=clock.now())
    runner.evaluations.evaluator = dies = _Dies()
    for _ in range(3):
        runner.beside()
    assert (dies.closed, runner.evaluations.evaluator) == (1, None)
    assert by_hand.machine.run.ending == StopRequested("reached", "error 0.09")


def test_the_status_is_shown_at_once_and_then_twice_a_second() -> None:
    _, clock, runner, seen = shown(Goals())
    assert STATUS_EVERY_S == 0.5
    shown_at = []
    for tick in range(12):
        before = len(seen)
        runner.beside()
        shown_at += [tick / 8] * (len(seen) - before)
        clock.advance(0.125)
    assert shown_at == [0.0, 0.5, 1.0]
    assert (seen[-1].state, seen[-1].agents_alive, seen[-1].agents_wanted) == ("training", 2, 2)
    assert seen[-1].seconds == 1.0


def test_what_evaluations_say_is_shown_at_once_and_another_record_is_not() -> None:
    _, clock, runner, seen = shown(Goals.of([Target("error", at_most=0.1), Evaluate(print)]))
    runner.beside()
    clock.advance(0.01)
    runner.evaluations.take(Evaluated(3))
    runner.beside()
    runner.evaluations.died(EvaluatorDied("killed", 4), clock.now())
    runner.beside()
    assert [one.seconds for one in seen] == [0.0, 0.01, 0.01]
    runner._record("evaluator", {"event": "restarted", "cycle": 4, "reason": "killed"})
    runner.beside()
    assert len(seen) == 3


def test_a_rate_and_a_tau_are_shown_when_they_are_known() -> None:
    _, clock, runner, _ = shown(Goals())
    assert (runner.status().images_per_s, runner.status().tau) == (None, None)
    for samples in (0, 30):
        runner._note(replace(progress(0), samples=samples))
        clock.advance(2.0)
    assert runner.status().images_per_s == 15.0


def test_updates_are_shown_where_nobody_counts_samples() -> None:
    _, clock, runner, _ = shown(Goals())
    for steps in (1, 31):
        runner._note(replace(progress(0), steps=steps, samples=0))
        clock.advance(2.0)
    assert (runner.status().images_per_s, runner.status().updates_per_s) == (None, 15.0)
    assert runner.progress()["samples"] is None


def test_what_agents_log_is_recorded_by_agent_and_shown_and_kept_as_the_mean() -> None:
    _, clock, runner, _ = shown(Goals())
    assert (runner.status().logged, runner.history()) == (None, [])
    runner.evaluations.take(Evaluated(3))
    clock.advance(1.0)
    for agent, loss in ((0, 4.0), (1, 2.0)):
        runner._note(replace(progress(agent), steps=31, metrics={"loss": loss}))
    runner._note(progress(0))
    assert [to_json(one) for one in runner.records.records if one.kind == "metrics"] == [
        {"kind": "metrics", "t": 1.0, "agent": agent, "incarnation": 0, "steps": 31, "metrics": {"loss": loss}, "samples": 1}
        for agent, loss in ((0, 4.0), (1, 2.0))
    ]
    assert runner.status().logged == ("loss", 3.0)
    clock.advance(0.5)
    lost = {"event": "lost", "index": 0, "incarnation": 0, "host": "h", "executor_id": "e0", "pid": 7, "reason": "killed"}
    runner._write(Write("agent", lost))
    runner._note(replace(progress(0), metrics={"loss": 4.0}))
    assert runner.status().logged == ("loss", 2.0), "what it said before comes late"
    assert runner.history() == [
        {"kind": "evaluation", "t": 0.0, "cycle": 3, "seconds": 0.1, "error": 0.5, "loss": None, "metrics": {}},
        {"kind": "metrics", "t": 1.0, "metrics": {"loss": 4.0}},
        {"kind": "metrics", "t": 1.5, "metrics": {"loss": 2.0}},
    ]
    runner._write(Write("agent", lost | {"event": "rediscovered"}))
    runner._note(replace(progress(0), metrics={"loss": 4.0}))
    assert runner.status().logged == ("loss", 3.0)


def test_an_evaluation_of_x0_reaches_no_target() -> None:
    by_hand, _, runner, _ = shown(Goals.of([Target("error", at_most=0.9), Evaluate(print)]))
    runner.evaluations.take(Evaluated(cycle=0))
    runner.beside()
    assert by_hand.machine.state == "RUNNING"
    assert runner.status().error == 0.5, "it is shown"
    runner.evaluations.take(Evaluated(cycle=1))
    runner.beside()
    assert by_hand.machine.state == "STOPPING"


def test_numbers_that_matter_are_shown_with_their_goals() -> None:
    target, evaluate = Target("accuracy", at_least=0.97), Evaluate(print)
    _, _, runner, _ = shown(Goals.of([target, EarlyStopping("loss"), evaluate]))
    runner.evaluations.take(Evaluated(1, {"error": 0.1, "f1": 0.8, "accuracy": 0.9, "loss": 0.5}))
    status = runner.status()
    assert (status.error, status.evaluated, status.targets) == (0.1, [("accuracy", 0.9), ("loss", 0.5)], ["accuracy >= 0.97"])
    _, _, runner, _ = shown(Goals.of([evaluate]))
    runner.evaluations.take(Evaluated(1, {"error": 0.1, "f1": 0.8}))
    assert runner.status().evaluated == [], "the error is shown already"
    runner.evaluations.take(Evaluated(2, {"perplexity": 20.5, "f1": 0.8}))
    assert (runner.status().error, runner.status().evaluated) == (None, [("perplexity", 20.5)])


@pytest.mark.parametrize(
    "goal", [Target("acuracy", at_least=0.97), KeepBest("acuracy", "max"), EarlyStopping("acuracy", 3, "max")]
)
def test_a_goal_whose_metric_no_evaluation_returns_is_refused_at_the_first(goal: Objective) -> None:
    _, _, runner, _ = shown(Goals.of([goal, Evaluate(print)]))
    with pytest.raises(ConfigError) as refused:
        runner.evaluations.take(Evaluated(0, {"accuracy": 0.9, "loss": 0.5}))
    assert str(refused.value) == f"{type(goal).__name__}: the evaluation returns no 'acuracy', but accuracy, loss"
    assert len(runner.evaluations.history) == 1, "what it did return is kept"


def test_a_metric_may_be_missing_from_an_evaluation_now_and_then() -> None:
    by_hand, _, runner, _ = shown(Goals.of([Target("f1", at_least=0.9), Evaluate(print)]))
    for cycle, values in ((1, {"f1": 0.8}), (2, {"loss": 0.5}), (3, {"loss": 0.4, "f1": 0.9})):
        assert by_hand.machine.state == "RUNNING"
        runner.evaluations.take(Evaluated(cycle, values))
        runner.beside()
    assert by_hand.machine.run.ending == StopRequested("reached", "f1 0.9 is at or above the target of 0.9")


def test_a_run_that_gets_no_better_ends() -> None:
    by_hand, _, runner, _ = shown(Goals.of([EarlyStopping("loss", 2), Evaluate(print)]))
    for cycle, loss in ((0, 0.1), (1, 0.5), (2, 0.6), (3, 0.5)):  # that of x_0 does not count
        assert by_hand.machine.state == "RUNNING"
        runner.evaluations.take(Evaluated(cycle, {"loss": loss}))
        runner.beside()
    assert by_hand.machine.run.ending == StopRequested("early_stopping", "no better loss in 2 evaluations; the best was 0.5")


@dataclass
class Evaluated:
    cycle: int
    values: dict[str, float] = field(default_factory=lambda: {"error": 0.5})
    seconds: float = 0.1


@pytest.mark.parametrize(
    ("steps", "train_s", "warned"), [(0, 90.0, False), (2, 90.0, False), (10, 49.0, False), (10, 310.0, True)]
)
def test_steps_that_are_longer_than_a_cycle_may_be_are_warned_of_once(
    caplog: pytest.LogCaptureFixture, steps: int, train_s: float, warned: bool
) -> None:
    runner = hears(said())
    assert runner.machine.shape.deadline_s == 5.0
    for _ in range(2):
        runner.step([replace(progress(0), steps=steps, train_s=train_s)])
    lines = [one.getMessage() for one in caplog.records if "cycle_deadline" in one.getMessage()]
    assert len(lines) == warned
    assert all(
        line.startswith("cluster.cycle_deadline = 5s is shorter than a step of agent 0, which takes 31s: ") for line in lines
    )
    assert all(line.endswith("set it to 1m33s or more") for line in lines)
