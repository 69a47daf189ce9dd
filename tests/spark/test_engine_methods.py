"""Every coordinated method on real executors: the joint model is what its formula makes of the snapshots that agents took.

The formulas are written out once more here, in float64 and whole vectors; nothing of `mpca.algorithm` or `mpca.methods` is
used. Those of mpca itself are in test_engine_training.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpca.methods import METHODS
from mpca.storage import Backups, LocalStore
from tests.spark.jobs import quadratic, regression
from tests.spark.paper import read_tape, shard_slices

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

PARAMETERS, BUFFERS = 300, 7
CYCLES = 15

Rule = Callable[[np.ndarray, np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]]


def blended(rate: float) -> Rule:
    return lambda x, v, mean, k: ((1 - rate) * x + rate * mean, v)


def averaged(keep: float) -> Rule:
    """The first as it is."""
    return lambda x, v, mean, k: (mean if k == 0 else keep * x + (1 - keep) * mean, v)


def outer(rate: float, momentum: float, nesterov: bool) -> Rule:
    def step(x: np.ndarray, v: np.ndarray, mean: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        d = mean - x
        v = momentum * v + d
        return x + rate * (d + momentum * v if nesterov else v), v

    return step


@dataclass(frozen=True)
class Case:
    method: str
    keys: tuple[str, ...]
    rule: Rule
    tau: int | None = None  # of every contribution; None: any above 0
    shards: int = 1
    agents: int = 3
    plain_mean: bool = False  # not weighted by tau
    plain_buffers: bool = False  # buffers are those of the mean, since only parameters have a momentum
    momentum: float = 0.0  # of the agents' optimisers, which is exchanged


CASES = {
    "sync": Case("sync", ("tau=4",), blended(1), tau=4),
    "sync, a fixed time": Case("sync", ("seconds=0.1",), blended(1)),
    "sync, a fixed time and the plain mean": Case("sync", ("seconds=0.1", "weighted=false"), blended(1), plain_mean=True),
    "dl4j-averaging": Case("dl4j-averaging", ("averaging_frequency=4", "updater=reset"), blended(1), tau=4),
    "dl4j-averaging, updater state": Case(
        "dl4j-averaging", ("averaging_frequency=4", "updater=average"), blended(1), tau=4, momentum=0.8
    ),
    "sync-ps": Case("sync-ps", ("momentum=0.8",), outer(1, 0.8, nesterov=False), tau=1, plain_buffers=True),
    "sync-easgd": Case("sync-easgd", ("tau=5",), blended(0.9)),
    "overlap-local-sgd": Case("overlap-local-sgd", ("tau=5",), outer(1, 0.7, nesterov=False), plain_buffers=True),
    "diloco": Case("diloco", ("period=6",), outer(0.7, 0.9, nesterov=True), tau=6, plain_buffers=True),
    "diloco, streaming": Case(
        "diloco",
        ("period=12", "fragments=3", "overlap=true", "outer_lr=0.4"),
        outer(0.4, 0.9, nesterov=True),
        shards=3,
        plain_buffers=True,
    ),
    "single, with an average": Case("single", ("ema=0.9", "every=5"), averaged(0.9**5), agents=1),
    "mpca-nesterov": Case(
        "mpca-nesterov",
        ("shards=3",),
        outer(0.7, 0.6, nesterov=True),
        shards=3,
        plain_buffers=True,
    ),
}


def test_every_method_is_tried() -> None:
    """mpca, of which mpca-paper has other numbers, is in test_engine_training.py; those that ask in test_engine_server.py."""
    coordinated = {name for name, method in METHODS.items() if not (method().asks or method.simulated)}
    assert {case.method for case in CASES.values()} | {"mpca", "mpca-paper"} == coordinated


@pytest.mark.parametrize("name", CASES)
def test_the_joint_model_is_what_the_method_makes_of_the_snapshots(engine: Any, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    shards, agents = case.shards, case.agents
    sets = (
        f"method.name={case.method}",
        "cluster.codec=none",
        *(f"method.{key}" for key in case.keys),
        f"objectives.max_cycles={CYCLES}",
    )
    options = {"momentum": case.momentum, "lr": 0.005} if case.momentum else {}  # so slow that it is still under way at the end
    told = engine(quadratic, sets=sets, run_dir=tmp_path / "run", **options)
    assert told.ended.exit_code == 0, told.ended.reason
    assert set(told.ended.returns) == set(range(agents))
    assert [set(one.contributors) for one in told.cycles] == [set(range(agents))] * CYCLES
    assert len({one.submissions for one in told.cycles}) == 1, "no order failed: with one phase a cycle is two of them"
    taus = [given["tau"] for one in told.cycles for given in one.contributors.values()]
    assert min(taus) > 0
    assert case.tau is None or set(taus) == {case.tau}

    start = told.ended.returns[0]["start"]
    if case.momentum:
        start = np.concatenate([start, np.zeros(PARAMETERS, np.float32)])
    slices = shard_slices(len(start), shards)
    snapshots: list[dict[int, np.ndarray]] = [{} for _ in slices]
    for tape in read_tape(told.run.folder, len(start)).values():
        for state in tape.reshape(-1, tape.shape[-1]):
            for shard, piece in enumerate(slices):
                snapshots[shard][zlib.crc32(state[piece].tobytes())] = state[piece].astype(np.float64)
    x, v = start.astype(np.float64), np.zeros(len(start))
    is_buffer = np.arange(len(start)) >= PARAMETERS
    made = PARAMETERS + BUFFERS
    for cycle in told.cycles:
        piece, k = slices[cycle.shard], cycle.cycle // shards
        given = [
            (1 if case.plain_mean else one["tau"], snapshots[cycle.shard][one["crc"]]) for one in cycle.contributors.values()
        ]
        mean = sum(weight * state for weight, state in given) / sum(weight for weight, _ in given)
        moved, v[piece] = case.rule(x[piece], v[piece], mean, k)
        x[piece] = np.where(is_buffer[piece] & case.plain_buffers, mean, moved)
    state = told.ended.model_state
    got = np.concatenate([state["first"], state["second"], state["walked"]])
    np.testing.assert_allclose(got, x[:made], rtol=1e-4, atol=1e-5)
    assert np.abs(got[:PARAMETERS] - start[:PARAMETERS]).max() > 0.05, "it must have moved"
    assert set(state) == {"first", "second", "walked"}
    backups = Backups(LocalStore(tmp_path / "run"), "backups")
    np.testing.assert_allclose(backups.newest().state.vector, x, rtol=1e-4, atol=1e-5)
    assert not case.momentum or np.abs(x[made:]).max() > 0.05, "so must the optimisers' state"


def test_eager_agents_hand_over_what_they_trained_and_go_on_by_an_outer_step_of_their_own(engine: Any) -> None:
    shards, agents, eta, mu = 3, 3, 0.4, 0.9
    keys = ("period=12", f"fragments={shards}", "overlap=true", "eager=true", f"outer_lr={eta}")
    sets = ("method.name=diloco", *(f"method.{key}" for key in keys), f"objectives.max_cycles={CYCLES}")
    told = engine(quadratic, sets=sets)
    assert told.ended.exit_code == 0, told.ended.reason
    assert [set(one.contributors) for one in told.cycles] == [set(range(agents))] * CYCLES
    start = told.ended.returns[0]["start"]
    tapes = read_tape(told.run.folder, PARAMETERS + BUFFERS)
    by_agent = {int(stem.removeprefix("agent").split("-")[0]): tape for stem, tape in tapes.items()}
    state = told.ended.model_state
    got = np.concatenate([state["first"], state["second"], state["walked"]])
    np.testing.assert_allclose(got, eagerly(start, told.cycles, by_agent, shards, eta, mu), rtol=1e-4, atol=1e-5)
    assert np.abs(got[:PARAMETERS] - start[:PARAMETERS]).max() > 0.05, "it must have moved"


def eagerly(start: np.ndarray, cycles: Any, tapes: dict[int, np.ndarray], shards: int, eta: float, mu: float) -> np.ndarray:
    """The joint model; each agent must have gone on where its own outer optimiser, with the paper's gradient, would be."""
    x, v, step = start.astype(np.float64), np.zeros(len(start)), outer(eta, mu, nesterov=True)
    begun, own = ([x.copy() for _ in tapes] for _ in range(2))
    own_v, mine, all_of_them = [v.copy() for _ in tapes], [v.copy() for _ in tapes], v.copy()  # outer gradients of a round ago
    made = [[0] * shards for _ in tapes]  # updates at the last snapshot of a shard
    for cycle in cycles:
        at = shard_slices(len(start), shards)[cycle.shard]
        is_buffer = np.arange(len(start))[at] >= PARAMETERS
        total, moved, buffers = sum(one["tau"] for one in cycle.contributors.values()), 0.0, 0.0
        for agent, one in cycle.contributors.items():
            made[agent][cycle.shard] += one["tau"]
            there, went_on = tapes[agent][made[agent][cycle.shard] - 1, :, at].astype(np.float64)
            d = np.where(is_buffer, 0, there - begun[agent][at])
            eager = d / len(tapes) + (all_of_them[at] - mine[agent][at] / len(tapes))
            own[agent][at], own_v[agent][at] = step(own[agent][at], own_v[agent][at], own[agent][at] + eager, 0)
            expected = there if cycle.cycle < shards else np.where(is_buffer, there, own[agent][at])
            np.testing.assert_allclose(went_on, expected, rtol=1e-4, atol=1e-5)
            begun[agent][at], mine[agent][at] = went_on, d
            moved, buffers = moved + d * one["tau"] / total, buffers + there * one["tau"] / total
        all_of_them[at] = moved
        after, v[at] = step(x[at], v[at], x[at] + moved, 0)
        x[at] = np.where(is_buffer, buffers, after)
    return x


def test_eq_6_learns_what_one_machine_learns(engine: Any) -> None:
    """The regulariser's form of the penalty changes gradients, so the joint model alone would not show that agents feel it."""
    random = np.random.default_rng(5)
    rows = random.normal(size=(480, 6)).astype(np.float32)
    answers = (rows @ np.arange(6) + 0.5 + 0.1 * random.normal(size=480)).astype(np.float32)
    sets = ("method.regulariser=true", "method.alpha=1.0", "objectives.max_cycles=60")
    told = engine(regression, rows, answers, 8, 0.05, sets=sets)
    assert told.ended.exit_code == 0, told.ended.reason
    state = told.ended.model_state
    np.testing.assert_allclose([*state["weight"][0], *state["bias"]], [0, 1, 2, 3, 4, 5, 0.5], atol=0.1)
