"""What the end of a run saves."""

from __future__ import annotations

from itertools import count
from math import inf
from types import SimpleNamespace

import pytest

from mpca.api import finish
from mpca.api.finish import evaluate_last, result_of
from mpca.driver.evaluating import EvaluatorDied
from tests.driver.test_joint import X, model


@pytest.mark.parametrize("exchanges", [[0, 0, 0], [1, 0, 0]])
def test_x0_is_nobodys_result(exchanges: list[int]) -> None:
    """Not saved, not evaluated; after the first commit the joint model is."""
    joint = model()
    joint.restore(X, 0 * X, exchanges)
    committed = any(exchanges)
    submitted: list[int] = []
    evaluator = SimpleNamespace(
        busy=False,
        submit=lambda cycle, joint: submitted.append(cycle),
        poll=lambda: [SimpleNamespace(values={"error": 0.25})] if submitted else [],
    )
    runner = SimpleNamespace(
        joint=joint,
        evaluations=SimpleNamespace(evaluator=evaluator, take=lambda done: None, submit=evaluator.submit, best_model=None),
        reached=None,
        machine=SimpleNamespace(cycle=3),
    )
    assert evaluate_last(runner, 60.0, lambda: False) == ({"error": 0.25} if committed else None)  # type: ignore[arg-type]
    data, state, _ = result_of(runner)  # type: ignore[arg-type]
    assert (data is not None, bool(state)) == (committed, committed)


class Slow:
    """An evaluator that is busy for some polls, and then as long with the last model; ``inf``: it never answers."""

    def __init__(self, polls: float) -> None:
        self.polls = self.left = polls
        self.submitted = False

    @property
    def busy(self) -> bool:
        return self.left > 0

    def submit(self, cycle: int, joint: object) -> None:
        self.submitted, self.left = True, self.polls

    def poll(self) -> list[SimpleNamespace]:
        self.left -= 1
        return [SimpleNamespace(values={"error": 0.25 if self.submitted else 0.5})] if self.left == 0 else []


def run_of(evaluator: Slow) -> SimpleNamespace:
    joint = model()
    joint.restore(X, 0 * X, [1, 0, 0])
    evaluations = SimpleNamespace(evaluator=evaluator, take=lambda done: None, submit=evaluator.submit)
    return SimpleNamespace(joint=joint, evaluations=evaluations, machine=SimpleNamespace(cycle=3))


def test_the_last_evaluation_has_its_time_and_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(finish, "LAST_EVALUATION_S", 0.1)
    # More than LAST_EVALUATION_S, first with another model: nothing hurries, so the answer is the last model's.
    assert evaluate_last(run_of(Slow(30)), 60.0, lambda: False) == {"error": 0.25}  # type: ignore[arg-type]
    assert not caplog.messages
    assert evaluate_last(run_of(Slow(inf)), 0.3, lambda: False) is None  # type: ignore[arg-type]
    assert caplog.messages == ["the last joint model was not evaluated: no answer within 300ms"]


def test_a_signal_while_the_last_model_is_evaluated_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(finish, "LAST_EVALUATION_S", 0.1)
    looks = count()
    assert evaluate_last(run_of(Slow(inf)), 60.0, lambda: next(looks) == 3) is None  # type: ignore[arg-type]
    assert next(looks) == 4, "nobody looks again once it has come"
    (told,) = caplog.messages
    assert told.endswith("ms"), "a part of a second of the minute"
    slow = Slow(5)
    assert evaluate_last(run_of(slow), 60.0, lambda: slow.submitted) == {"error": 0.25}  # type: ignore[arg-type]


def test_an_evaluator_that_dies_with_an_older_model_is_asked_for_the_last_one(caplog: pytest.LogCaptureFixture) -> None:
    class Dies(Slow):
        def poll(self) -> list[SimpleNamespace]:
            done = super().poll()
            return [EvaluatorDied("killed", 2)] if done and not self.submitted else done  # type: ignore[list-item]

    assert evaluate_last(run_of(Dies(3)), 60.0, lambda: False) == {"error": 0.25}  # type: ignore[arg-type]
    assert not caplog.messages

    class DiesAgain(Slow):
        def poll(self) -> list[SimpleNamespace]:
            return [EvaluatorDied("killed", 3)] if super().poll() else []  # type: ignore[list-item]

    assert evaluate_last(run_of(DiesAgain(3)), 60.0, lambda: False) is None  # type: ignore[arg-type]
    assert caplog.messages == ["the last joint model was not evaluated: killed"]
