"""The stacked trainer: runs in one vector against trainers of one run, and one run against the agent's own torch trainer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from mpca import data, models
from mpca.agent.layout import read_layout
from mpca.agent.torch_trainer import TorchTrainer
from mpca.methods import How
from mpca.models.stacked import Stack
from mpca.sim.science.batches import Batches
from mpca.sim.science.trainer import StackedTrainer

SEEDS, RATES, SHARDS = (5, 6, 5), (0.002, 0.002, 0.004), 3

#: Of the pull (eq. 7), and of the tilt (eq. 6), which the learning rate makes smaller.
ALPHA = {How.PULL: 0.1, How.TILT: 20.0}
#: What happens, in order; an arrival is the agent's own x_0 plus that number, everywhere.
STORY = ["advance 2", "snapshot 0", "advance 1", "install 0 0.1", "advance 2", "replace 1 -0.1", "snapshot 1", "advance 1"]
STORY += ["install 2 0.2", "install 1 0.1", "advance 2", "snapshot 2", "pull 1", "advance 1"]


pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]


def trainer(seeds: tuple[int, ...], rates: tuple[float, ...], how: How) -> StackedTrainer:
    stack = Stack(lambda: models.create("warped_resnet"), seeds, rates, "nesterov")
    edges = [stack.elements * shard // SHARDS for shard in range(SHARDS + 1)]
    batches = Batches(data.load("warped-digits", "test").tensors, 8, seeds, agent=2, incarnation=1)
    runs = len(seeds)
    return StackedTrainer([runs * edge for edge in edges], runs * stack.parameters, how, stack, batches)


def play(one: StackedTrainer, story: list[str], pull: float) -> np.ndarray:
    """The flat vector at the end; `pull` is alpha for shards with a target."""
    x0, pulled = [taken(one, shard) for shard in range(SHARDS)], {}
    for line in story:
        what, number, *value = line.split()
        shard = int(number)
        if what == "advance":
            one.advance(shard, tuple(pulled.items()))
        elif what == "snapshot":
            taken(one, shard)
        elif what == "pull":
            if pull:
                one.pull(((shard, 0.5),))
        else:
            one.install(shard, x0[shard] + np.float32(value[0]), 1, what)
            if what == "install" and pull:
                pulled[shard] = pull
            else:
                pulled.pop(shard, None)
    return np.concatenate([taken(one, shard) for shard in range(SHARDS)])


def taken(one: StackedTrainer, shard: int) -> np.ndarray:
    out = np.empty(one.bounds[shard + 1] - one.bounds[shard], np.float32)
    one.snapshot(shard, out)
    return out


@pytest.mark.parametrize("how", How)
def test_three_runs_in_one_vector_are_bit_for_bit_three_trainers(how: How) -> None:
    pull = ALPHA.get(how, 0.0)
    together = play(trainer(SEEDS, RATES, how), STORY, pull).reshape(-1, 3)
    for run, (seed, rate) in enumerate(zip(SEEDS, RATES, strict=True)):
        assert np.array_equal(together[:, run], play(trainer((seed,), (rate,), how), STORY, pull))


@pytest.mark.parametrize("how", How)
def test_one_run_is_the_agents_own_trainer_buffers_included(how: How) -> None:
    pull = ALPHA.get(how, 0.0)
    torch.manual_seed(5)
    model = models.create("warped_resnet")
    optimizer = torch.optim.SGD(model.parameters(), 0.002, momentum=0.9, nesterov=True)
    layout = read_layout(model)
    real = TorchTrainer(layout, layout.plan(SHARDS, False), how)
    batches = Batches(data.load("warped-digits", "test").tensors, 8, (5,), agent=2, incarnation=1)

    def advance(updates: int, pulls: tuple[tuple[int, float], ...]) -> None:
        for _ in range(updates):
            if how is not How.TILT:
                real.pull(pulls)
            (samples,), (labels,) = batches.take()
            optimizer.zero_grad()
            functional.cross_entropy(model(samples), labels).backward()
            if how is How.TILT:
                real.tilt(pulls, optimizer)
            optimizer.step()

    real.advance = advance
    simulated = trainer((5,), (0.002,), how)
    assert real.bounds[: SHARDS + 1] == simulated.bounds  # behind them is BatchNorm's integer, which stays local
    assert real.parameters == simulated.parameters < simulated.bounds[-1]
    np.testing.assert_allclose(play(simulated, STORY, pull), play(real, STORY, pull), rtol=1e-3, atol=2e-5)


def test_an_agent_reads_every_sample_once_an_epoch_in_an_order_of_its_own() -> None:
    samples, labels = torch.arange(40.0)[:, None], torch.arange(40)
    orders = {}
    for agent, incarnation in ((0, 1), (1, 1), (1, 2)):
        batches = Batches((samples, labels), 8, (7, 9, 7), agent, incarnation)
        epochs = [torch.stack([batches.take()[1] for _ in range(5)], dim=1).flatten(1) for _ in range(2)]
        for epoch in epochs:
            assert [sorted(run.tolist()) for run in epoch] == [list(range(40))] * 3
            assert torch.equal(epoch[0], epoch[2])  # equal seeds
            assert not torch.equal(epoch[0], epoch[1])
        assert not torch.equal(*epochs)
        orders[(agent, incarnation)] = tuple(epochs[0].flatten().tolist())
    assert len(set(orders.values())) == 3


def test_samples_and_labels_stay_together() -> None:
    samples, labels = torch.arange(40.0)[:, None], torch.arange(40)
    some, answers = Batches((samples, labels), 8, (1, 2), 0, 0).take()
    assert torch.equal(some[..., 0].long(), answers)
    assert some.shape == (2, 8, 1)
