"""What the end of a run saves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mpca.api.finish import evaluate_last, save_last
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
    assert evaluate_last(runner) == ({"error": 0.25} if committed else None)  # type: ignore[arg-type]
    data, state, _ = save_last(runner, None)  # type: ignore[arg-type]
    assert (data is not None, bool(state)) == (committed, committed)
