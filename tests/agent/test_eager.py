"""Eager outer updates: against torch's optimiser with what the paper gives it, and when things go wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mpca.agent.eager import EagerOuter
from mpca.agent.layout import read_layout
from mpca.agent.torch_trainer import TorchTrainer
from mpca.algorithm import Outer, arrived, begin_eager, handed_over, init, outer_step
from mpca.methods import How
from mpca.sim.trainers import LinearTrainer

OUTER = Outer(0.4, 0.9)
BOUNDS, PARAMETERS = [0, 4, 8], 6  # the last two elements are buffers


class Theirs:
    """A model with torch's Nesterov, whose gradient is what the paper says, with the opposite sign."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = torch.nn.Parameter(torch.from_numpy(x.copy()))
        self._optimizer = torch.optim.SGD([self.x], OUTER.rate, OUTER.momentum, nesterov=True)

    def step(self, d: np.ndarray) -> np.ndarray:
        self.x.grad = -torch.from_numpy(d)
        self._optimizer.step()
        return self.x.detach().numpy().copy()


@pytest.mark.parametrize("agents", [1, 2, 5])
def test_agents_go_on_where_torchs_optimiser_goes_with_the_papers_eager_gradient(agents: int) -> None:
    random, size = np.random.default_rng(agents), 7
    x0 = random.normal(size=size)
    joint, theirs = Theirs(x0), [Theirs(x0) for _ in range(agents)]
    state, states = init(x0, size), [begin_eager(x0) for _ in range(agents)]
    before, mine_before = np.zeros(size), np.zeros((agents, size))
    for number in range(12):
        mine = random.normal(size=(agents, size))  # what each of them trains
        mean, sent = mine.mean(axis=0), []
        for i in range(agents):
            states[i], given = handed_over(states[i], states[i].start + mine[i], OUTER)
            sent.append(given)
            expected = theirs[i].step(mine[i] / agents + (before - mine_before[i] / agents))
            if number:  # none has come from others before
                np.testing.assert_allclose(states[i].start, expected, rtol=1e-9, atol=1e-9)
        state = outer_step(state, np.mean(sent, axis=0), OUTER)
        np.testing.assert_allclose(state.x, joint.step(mean), rtol=1e-9, atol=1e-9)
        states = [arrived(one, state.x, 1 / agents, OUTER) for one in states]
        before, mine_before = mean, mine


MUCH, LESS = Outer(0.7, 0.9), Outer(0.4, 0.6)


@pytest.mark.parametrize(
    ("outer", "c", "shrinks"), [(MUCH, 0.1, 0.95), (MUCH, 0.6, 1.05), (LESS, 0.3, 0.78), (LESS, 0.1, 0.87)]
)
def test_with_much_momentum_the_error_of_eight_agents_hardly_shrinks(outer: Outer, c: float, shrinks: float) -> None:
    """Their optimum is 0, and each goes a share c of the way to it in a round."""
    state, one, seen = init(np.ones(1), 1), begin_eager(np.ones(1)), []
    for _ in range(200):
        one, sent = handed_over(one, (1 - c) * one.start, outer)
        state = outer_step(state, sent, outer)
        one = arrived(one, state.x, 1 / 8, outer)
        seen.append(float(np.hypot(state.x[0], one.start[0])))
    assert (max(seen[-40:]) / max(seen[60:100])) ** (1 / 100) == pytest.approx(shrinks, abs=0.02)


def eager(x: np.ndarray) -> EagerOuter:
    def read(shard: int, out: np.ndarray) -> None:
        out[:] = x[BOUNDS[shard] : BOUNDS[shard + 1]]

    return EagerOuter(Outer(1.0, 0.5), [*BOUNDS, 11], PARAMETERS, 2, read)


def handed(one: EagerOuter, shard: int, *values: float) -> tuple[list[float], list[float]]:
    out = np.float32(values)
    after = one.hand_over(shard, out)
    return out.tolist(), after.tolist()


def test_before_a_joint_state_has_come_an_agent_goes_on_where_it_is() -> None:
    one = eager(np.float32([1, 1, 1, 1, 2, 2, 7, 7]))
    assert handed(one, 0, 2, 3, 4, 5) == ([2, 3, 4, 5], [2, 3, 4, 5])
    assert handed(one, 0, 3, 3, 4, 5) == ([3, 3, 4, 5], [3, 3, 4, 5]), "what it handed over before is not lost"


def test_buffers_are_handed_over_and_stay_as_they_are() -> None:
    one = eager(np.float32([1, 1, 1, 1, 2, 2, 7, 7]))
    one.installed(1, np.float32([4, 4, 9, 9]), "install", 0.5)
    assert handed(one, 1, 4, 2, 5, 6) == ([6, 4, 5, 6], [4 + (2 + 0.5 * 2) / 2, 4, 5, 6])
    one.installed(2, np.float32([0, 0, 0]), "replace", 0.0)  # local tensors


def test_who_is_asked_again_without_an_update_hands_over_the_same_and_goes_on_from_the_same() -> None:
    """The executor dropped the first answer, which came too late."""
    one = eager(np.zeros(8, np.float32))
    one.installed(0, np.float32([4, 4, 4, 4]), "install", 0.25)
    sent, after = handed(one, 0, 1, 2, -3, 0)
    assert handed(one, 0, *after) == (sent, after)


def test_what_was_handed_over_before_a_joint_state_came_moves_the_next_one_by_momentum() -> None:
    one = eager(np.zeros(8, np.float32))
    handed(one, 0, 4, 4, 4, 4)
    one.installed(0, np.float32([1, 1, 1, 1]), "install", 0.5)
    assert handed(one, 0, 4, 4, 4, 4) == ([1, 1, 1, 1], [1 + 0.5 * (0.5 * (0.5 * 4))] * 4)


def test_a_replacement_begins_at_the_joint_state_without_momentum() -> None:
    one = eager(np.zeros(8, np.float32))
    one.installed(0, np.float32([1, 1, 1, 1]), "install", 0.5)
    handed(one, 0, 4, float("nan"), 4, 4)
    one.installed(0, np.float32([2, 2, 2, 2]), "replace", 0.0)
    assert handed(one, 0, 3, 3, 3, 3) == ([3, 3, 3, 3], [3, 3, 3, 3])
    one.installed(0, np.float32([5, 5, 5, 5]), "install", 0.5)
    assert handed(one, 0, 3, 3, 3, 3) == ([5, 5, 5, 5], [5 + 0.5 * 0.5 * 0.5] * 4)


def test_an_arrival_moves_nothing_in_the_simulator_and_in_torch() -> None:
    weight = torch.nn.Parameter(torch.ones(8))
    layout = read_layout(torch.nn.ParameterList([weight]))
    real = TorchTrainer(layout, layout.plan(2, False), How.EAGER)
    simulated = LinearTrainer(BOUNDS, 8, How.EAGER, agent=1, incarnation=0)
    simulated.begin_at(np.ones(8, np.float32))
    for trainer in (real, simulated):
        trainer.install(1, np.full(4, 8, np.float32), 1, "install")
        trainer.install(0, np.full(4, 3, np.float32), 0, "replace")
    assert weight.tolist() == simulated.x.tolist() == [3.0] * 4 + [1.0] * 4
