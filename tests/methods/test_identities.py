"""Methods that must be the same thing, and what they conserve: on the production driver and agents, in virtual time."""

from __future__ import annotations

from typing import ClassVar
from zlib import crc32

import numpy as np
import pytest

from mpca.algorithm import weighted_sum
from mpca.methods import How
from mpca.sim.costs import Costs
from mpca.sim.faults import Fault
from mpca.sim.run import Outcome, Scenario, simulate
from mpca.sim.trainers import TRAINERS, LinearTrainer, QuadraticTrainer


def run(method: dict[str, object], cycles: int, seed: int = 0, **more: object) -> Outcome:
    """Plain SGD on losses with constant gradients, without buffers."""
    values = {"agents": 4, "trainer": "linear", "buffers": 0, "parameters": 7, **more}
    return simulate(Scenario(method=method, cycles=cycles, **values), seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("faults", [(), (Fault("kill_agent", 2, 4, "frozen"),)], ids=["all", "loses one"])
def test_mpca_with_replacement_without_projection_in_one_phase_is_sync_with_overlap(seed: int, faults: tuple[Fault]) -> None:
    """Every snapshot is tau updates from the newest joint state, which is the mean: agents only do not wait for it."""
    method = {"name": "mpca", "replace": True, "shards": 1, "gamma": 0.0, "beta": 1.0}
    outcome = run(method, 12, seed, faults=faults)
    joint = np.zeros(7, np.float32)
    for one in outcome.commits:
        taus = {int(agent): said["tau"] for agent, said in one.contributors.items()}
        steps = {agent: tau * LinearTrainer.lr * LinearTrainer.gradient_of(7, agent) for agent, tau in taus.items()}
        mean = weighted_sum([joint - steps[agent] for agent in taus], list(taus.values()))
        joint = joint if mean is None else mean
    np.testing.assert_allclose(np.concatenate(outcome.joint), joint, rtol=1e-5)
    assert outcome.faults == list(faults)


LOSES = (Fault("kill_agent", 2, 4, "frozen"), Fault("kill_executor", 1, 7, "reducing"))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("faults", [(), LOSES], ids=["all", "loses two"])
def test_diloco_with_outer_rate_1_and_no_momentum_is_sync_to_the_bit(seed: int, faults: tuple[Fault, ...]) -> None:
    diloco = run({"name": "diloco", "period": 5, "outer_lr": 1.0, "outer_momentum": 0.0}, 12, seed, faults=faults, buffers=2)
    sync = run({"name": "sync", "tau": 5}, 12, seed, faults=faults, buffers=2)
    assert diloco.ledger == sync.ledger
    assert [one.tobytes() for one in diloco.joint] == [one.tobytes() for one in sync.joint]
    assert len(diloco.faults) == len(faults)


@pytest.mark.parametrize("phases", [1, 3])
@pytest.mark.parametrize("mixing", [0.0, 0.5])
def test_streaming_fragments_are_exchanged_in_turn_with_the_period_of_diloco(phases: int, mixing: float) -> None:
    """Every fragment has its turn after `period` updates, and nobody waits: a fast agent makes more."""
    method = {"name": "diloco", "period": 80, "fragments": 4, "overlap": True, "phases": phases, "mixing": mixing}
    costs = Costs(rate=1e9, spread=0.0)
    commits = run(method, 24, parameters=16, costs=costs).commits
    assert [one.shard for one in commits] == [n % 4 for n in range(24)]
    begun = [one.stages["reduce"]["start"] for one in commits]
    periods = [(b - a) / costs.step_s for a, b in zip(begun[4:], begun[8:], strict=False)]
    assert all(80 <= period < 100 for period in periods), periods
    if mixing:
        assert {one["tau"] for commit in commits[4:] for one in commit.contributors.values()} == {80}
        assert {commit.alpha for commit in commits} == {0.5}


@pytest.mark.parametrize("fragments", [1, 4])
def test_on_a_flat_loss_eager_agents_meet(living: dict[int, Settling], fragments: int) -> None:
    """Their momentum is spent after some rounds, and each is at the joint state of a round ago."""
    method = {"name": "diloco", "period": 20, "fragments": fragments, "overlap": True, "eager": True, "outer_momentum": 0.6}
    outcome = run(method, 40 * fragments, trainer="settling")
    first, *others = (one.x for _, one in sorted(living.items()))
    assert np.abs(first).max() > 1.0
    for other in (*others, np.concatenate(outcome.joint)):
        np.testing.assert_allclose(other, first, atol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_sync_of_one_agent_is_single_to_the_bit(seed: int) -> None:
    """Each reads what a model has that makes as many updates alone."""
    seen = {}
    for method in ({"name": "sync", "tau": 5}, {"name": "single"}):
        alone, crcs, updates = QuadraticTrainer([0, 9], 7, How.PULL, 0, 0), {}, 0
        outcome = run(method, 12, seed, agents=1, trainer="quadratic", buffers=2)
        for one in outcome.commits:
            said = one.contributors[0]
            alone.advance(said["tau"], ())
            updates += said["tau"]
            crcs[updates] = said["crc"]
            assert said["crc"] == crc32(alone.x.tobytes())
        seen[method["name"]] = crcs
        assert outcome.joint[0].tobytes() == alone.x.tobytes()
    assert set(seen["sync"]) == set(range(5, 65, 5))


@pytest.mark.parametrize("seed", range(3))
def test_sync_after_each_update_with_plain_sgd_is_one_machine_with_all_batches(seed: int) -> None:
    x, minima = np.zeros(7), np.array([[agent + j % 3 for j in range(7)] for agent in range(4)])
    for cycles in range(1, 8):
        x -= QuadraticTrainer.lr * (x - minima).mean(axis=0)
        (joint,) = run({"name": "sync", "tau": 1}, cycles, seed, trainer="quadratic").joint
        np.testing.assert_allclose(joint, x, rtol=1e-5)


@pytest.mark.parametrize("faults", [(), LOSES], ids=["all", "loses two"])
def test_sync_ps_without_momentum_is_sync_after_each_update_to_the_bit(faults: tuple[Fault, ...]) -> None:
    server, sync = (run(m, 12, faults=faults) for m in ({"name": "sync-ps", "momentum": 0.0}, {"name": "sync", "tau": 1}))
    assert server.ledger == sync.ledger
    assert server.joint[0].tobytes() == sync.joint[0].tobytes()


class Settling(LinearTrainer):
    """The loss is flat from update 20 on."""

    living: ClassVar[dict[int, Settling]] = {}

    def __init__(self, bounds: list[int], parameters: int, how: How, agent: int, incarnation: int) -> None:
        super().__init__(bounds, parameters, how, agent, incarnation)
        self.living[agent] = self
        self.made = 0
        self.snapshots: list[np.ndarray] = []

    def advance(self, updates: int, pulls: tuple[tuple[int, float], ...]) -> None:
        for _ in range(updates):
            super().advance(1, pulls)
            self.made += 1
            if self.made == 20:
                self.gradient[:] = 0

    def snapshot(self, shard: int, out: np.ndarray) -> None:
        super().snapshot(shard, out)
        if self.made:
            self.snapshots.append(out.copy())


@pytest.fixture
def living(monkeypatch: pytest.MonkeyPatch) -> dict[int, Settling]:
    monkeypatch.setitem(TRAINERS, "settling", Settling)
    monkeypatch.setattr(Settling, "living", {})
    return Settling.living


@pytest.mark.parametrize("shards", [1, 3, 5])
@pytest.mark.parametrize("outer", [{}, {"outer_lr": 0.7, "outer_momentum": 0.6}], ids=["eq. 8", "outer"])
def test_on_a_flat_loss_delay_corrected_agents_meet(living: dict[int, Settling], shards: int, outer: dict[str, float]) -> None:
    method = {"name": "mpca", "correction": True, "shards": shards, **outer}
    outcome = run(method, 40 * shards, trainer="settling")
    first, *others = (one.x for _, one in sorted(living.items()))
    assert np.abs(first).max() > 1.0
    for other in others:
        np.testing.assert_allclose(other, first, atol=1e-4)
    np.testing.assert_allclose(np.concatenate(outcome.joint), first, atol=0.05, err_msg="its trajectory decays")


def test_on_a_flat_loss_sync_easgd_keeps_the_sum_of_center_and_agents(living: dict[int, Settling]) -> None:
    run({"name": "sync-easgd", "tau": 10}, 12, trainer="settling", costs=Costs(rate=1e9, spread=0.0))
    center, sums = np.zeros(7), []
    rounds = list(zip(*(one.snapshots for one in living.values()), strict=True))
    for snapshots in rounds[:12]:
        sums.append(center + sum(snapshots))
        center = 0.1 * center + 0.9 * np.mean(snapshots, axis=0)
    np.testing.assert_allclose(sums[2:], [sums[2]] * (len(sums) - 2), atol=1e-4)
    assert np.abs(rounds[3][0] - rounds[11][0]).max() > 0.01, "they do move"


@pytest.mark.parametrize("tau", [3, 10])
def test_on_a_flat_loss_easgd_keeps_the_sum_of_center_and_agents_and_all_meet(living: dict[int, Settling], tau: int) -> None:
    """No agent is in the middle of an exchange at the end: each waits for updates that take long."""
    outcome = run({"name": "easgd", "tau": tau}, 200, trainer="settling", costs=Costs(rate=1e9, spread=0.0))
    (center,) = outcome.joint
    agents = [one.x for _, one in sorted(living.items())]
    total = sum(-LinearTrainer.lr * 20 * LinearTrainer.gradient_of(7, agent) for agent in range(4))
    np.testing.assert_allclose(center + sum(agents), total, atol=1e-3)
    for one in agents:
        np.testing.assert_allclose(one, center, atol=1e-3)


@pytest.mark.parametrize("n_push", [1, 5])
@pytest.mark.parametrize("seed", range(3))
def test_async_ps_of_one_agent_is_single_to_the_bit(seed: int, n_push: int) -> None:
    """Of numbers whose differences are exact: the constant gradients are multiples of a power of 2."""
    outcome = run({"name": "async-ps", "n_push": n_push}, 12, seed, agents=1, buffers=2)
    alone = LinearTrainer([0, 9], 7, How.PULL, 0, 0)
    alone.advance(12 * n_push, ())
    assert outcome.joint[0].tobytes() == alone.x.tobytes()


def test_on_a_flat_loss_a_server_has_the_sum_of_all_updates(living: dict[int, Settling]) -> None:
    for method in ({"name": "async-ps"}, {"name": "gradient-sharing", "threshold": 0.25}):
        living.clear()
        outcome = run(method, 600, trainer="settling", costs=Costs(rate=1e9, spread=0.3))
        total = sum(-LinearTrainer.lr * 20 * LinearTrainer.gradient_of(7, agent) for agent in range(4))
        np.testing.assert_array_equal(outcome.joint[0], total, err_msg="all residuals have been sent")


def test_softsync_of_one_change_with_staleness_that_does_not_count_is_async_ps_to_the_bit() -> None:
    soft, plain = (
        run(method, 40, trainer="quadratic", buffers=2)
        for method in ({"name": "softsync", "n": 4, "by_staleness": False}, {"name": "async-ps"})
    )
    assert soft.ledger == plain.ledger
    assert soft.joint[0].tobytes() == plain.joint[0].tobytes()


@pytest.mark.parametrize(
    "method", [{"name": "sync", "seconds": 0.45}, {"name": "mpca", "replace": True, "shards": 1, "gamma": 0.0}]
)
@pytest.mark.parametrize("per_executor", [1, 2])
def test_unweighted_is_the_plain_mean_of_what_agents_hand_over(method: dict[str, object], per_executor: int) -> None:
    """With replacement each snapshot is tau updates from the newest joint state; the slowest agent makes half as many."""
    costs = Costs(spread=1.0)
    outcome = run({**method, "weighted": False}, 8, costs=costs, per_executor=per_executor)
    weighted = run(method, 8, costs=costs, per_executor=per_executor)
    joint, taus = np.zeros(7), set()
    for one in outcome.commits:
        handed = [(said["tau"], int(agent)) for agent, said in one.contributors.items() if said["tau"]]
        if not handed:
            continue
        taus |= {tau for tau, _ in handed}
        rate = one.beta
        mean = np.mean([joint - tau * LinearTrainer.lr * LinearTrainer.gradient_of(7, agent) for tau, agent in handed], axis=0)
        joint = (1 - rate) * joint + rate * mean
    assert len(taus) > 2
    np.testing.assert_allclose(np.concatenate(outcome.joint), joint, rtol=1e-4)
    assert np.abs(np.concatenate(weighted.joint) - joint).max() > 0.1
