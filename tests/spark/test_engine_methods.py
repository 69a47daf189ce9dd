"""Each method on real executors: those in step against float64 on one machine, the others by what they learn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.spark.jobs import regression

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

AGENTS, BATCH, LR = 3, 8, 0.05
RANDOM = np.random.default_rng(5)
ROWS = RANDOM.normal(size=(480, 6)).astype(np.float32)
ANSWERS = (ROWS @ np.arange(6) + 0.5 + 0.1 * RANDOM.normal(size=480)).astype(np.float32)


def trained(x: np.ndarray, agent: int, steps: range) -> np.ndarray:
    """Weights and bias after these steps of an agent of `jobs.regression`."""
    for step in steps:
        first = (step * AGENTS + agent) * BATCH % len(ROWS)
        rows = np.column_stack([ROWS[first : first + BATCH].astype(np.float64), np.ones(BATCH)])
        x = x - LR * 2 / BATCH * rows.T @ (rows @ x - ANSWERS[first : first + BATCH])
    return x


def in_rounds(rounds: int, tau: int, outer: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """The joint model of agents that begin each round at it; `outer` gives its step from the mean's and the momentum's."""
    x, v = np.zeros(7), np.zeros(7)
    for number in range(rounds):
        steps = range(number * tau, (number + 1) * tau)
        d = np.mean([trained(x, agent, steps) for agent in range(AGENTS)], axis=0) - x
        v = 0.9 * v + d
        x = x + outer(d, v)
    return x


def vector(told) -> np.ndarray:
    state = told.ended.model_state
    return np.concatenate([state["weight"][0], state["bias"]])


def sets(method: str, cycles: int) -> tuple[str, ...]:
    return (*(f"method.{one}" for one in method.split()), f"objectives.max_cycles={cycles}")


@pytest.mark.parametrize(
    ("method", "tau", "outer"),
    [
        ("name=sync-ps", 1, lambda d, v: v),
        ("name=diloco period=5", 5, lambda d, v: 0.7 * (d + 0.9 * v)),
        ("name=dl4j-averaging updater=reset", 5, lambda d, v: d),
    ],
)
def test_in_step_it_is_what_one_machine_computes(engine, method, tau, outer) -> None:
    told = engine(regression, ROWS, ANSWERS, BATCH, LR, sets=sets(method, 15))
    assert told.ended.exit_code == 0, told.ended.reason
    assert {given["tau"] for one in told.cycles for given in one.contributors.values()} == {tau}
    assert all(set(one.contributors) == {0, 1, 2} for one in told.cycles)
    np.testing.assert_allclose(vector(told), in_rounds(len(told.cycles), tau, outer), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "method",
    [
        "name=overlap-local-sgd tau=20",
        "name=sync-easgd tau=20",
        "name=diloco period=60 fragments=3 overlap=true outer_lr=0.4",
        "name=mpca correction=true outer_lr=0.7 outer_momentum=0.6 shards=3 weighted=false",
        "name=mpca regulariser=true alpha=1.0",
    ],
)
def test_out_of_step_it_learns(engine, method) -> None:
    told = engine(regression, ROWS, ANSWERS, BATCH, LR, sets=sets(method, 60))
    assert told.ended.exit_code == 0, told.ended.reason
    np.testing.assert_allclose(vector(told), [0, 1, 2, 3, 4, 5, 0.5], atol=0.1)
