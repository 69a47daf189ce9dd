"""An optimiser's state as a part of what is exchanged: who takes it goes on as the optimiser that had it would."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mpca.agent.layout import read_layout
from mpca.agent.optimizers import Optimizers, check_exchanged
from mpca.agent.torch_trainer import TorchTrainer
from mpca.errors import ConfigError
from mpca.methods import How
from mpca.storage import ModelLayout

MADE: dict[str, tuple[Callable[[Any], torch.optim.Optimizer], tuple[str, ...]]] = {
    "sgd": (lambda of: torch.optim.SGD(of, lr=0.1), ()),
    "momentum": (lambda of: torch.optim.SGD(of, lr=0.1, momentum=0.9, nesterov=True), ("momentum_buffer",)),
    "damped": (lambda of: torch.optim.SGD(of, lr=0.1, momentum=0.9, dampening=0.5), ("momentum_buffer",)),
    "adam": (lambda of: torch.optim.Adam(of, lr=0.1), ("exp_avg", "exp_avg_sq", "step")),
    "fused": (lambda of: torch.optim.Adam(of, lr=0.1, fused=True), ("exp_avg", "exp_avg_sq", "step")),
    "amsgrad": (lambda of: torch.optim.Adam(of, lr=0.1, amsgrad=True), ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step")),
    "adamw": (lambda of: torch.optim.AdamW(of, lr=0.1), ("exp_avg", "exp_avg_sq", "step")),
}


class Net(nn.Module):
    """A convolution in channels_last, BatchNorm, a parameter that is never used, and one that no optimiser has."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv = nn.Conv2d(2, 3, 3, bias=False).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(3)
        self.unused = nn.Parameter(torch.randn(2))
        self.apart = nn.Parameter(torch.ones(1))


class Agent:
    def __init__(self, optimizer: str, net: nn.Module | None = None) -> None:
        self.net = net or Net()
        self.optimizer = MADE[optimizer][0](one for name, one in self.net.named_parameters() if name != "apart")
        optimizers = Optimizers()
        optimizers.add(self.optimizer)
        self.layout = read_layout(self.net, optimizers)
        self.trainer = TorchTrainer(self.layout, self.layout.plan(1, False), How.REPLACE, optimizers)

    def train(self, seeds: range) -> None:
        for seed in seeds:
            generator = torch.Generator().manual_seed(seed)
            self.optimizer.zero_grad()
            self.net.norm(self.net.conv(torch.randn(2, 2, 5, 5, generator=generator))).sub(1).square().mean().backward()
            self.optimizer.step()

    def read(self) -> np.ndarray:
        out = np.full(self.layout.total, np.nan, np.float32)
        self.trainer.snapshot(0, out)
        return out

    def take(self, joint: np.ndarray) -> None:
        self.trainer.install(0, joint, 1, "install")


def same(one: Agent, other: Agent) -> None:
    assert one.read().tobytes() == other.read().tobytes()
    torch.testing.assert_close(one.optimizer.state_dict(), other.optimizer.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(one.net.state_dict(), other.net.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("optimizer", MADE)
def test_alone_it_is_the_same_training_to_the_bit(optimizer: str) -> None:
    exchanges, trains = Agent(optimizer), Agent(optimizer)
    for start in range(0, 12, 3):
        exchanges.take(exchanges.read())  # zeros before the first update make no state
        for one in (exchanges, trains):
            one.train(range(start, start + 3))
    same(exchanges, trains)


@pytest.mark.parametrize("optimizer", MADE)
def test_who_joins_goes_on_as_the_one_whose_state_it_took(optimizer: str) -> None:
    first, joins = Agent(optimizer), Agent(optimizer)
    first.train(range(5))
    joins.take(first.read())
    for one in (first, joins):
        one.train(range(5, 9))
    assert first.read().tobytes() == joins.read().tobytes()
    states = [one.optimizer.state_dict()["state"] for one in (first, joins)]
    torch.testing.assert_close(*states, rtol=0, atol=0)


@pytest.mark.parametrize("optimizer", ["momentum", "amsgrad"])
def test_the_joint_state_is_the_mean_and_equal_agents_stay_equal(optimizer: str) -> None:
    agents = [Agent(optimizer) for _ in range(2)]
    for at, one in enumerate(agents):
        one.train(range(10 * at, 10 * at + 4))
    before = [deepcopy(one.optimizer.state[one.net.conv.weight]) for one in agents]
    joint = (agents[0].read() + agents[1].read()) / 2
    for one in agents:
        one.take(joint)
    same(*agents)
    for key in MADE[optimizer][1]:
        mean = (before[0][key] + before[1][key]) / 2
        torch.testing.assert_close(agents[0].optimizer.state[agents[0].net.conv.weight][key], mean)
    for one in agents:
        one.train(range(30, 34))
    same(*agents)


@pytest.mark.parametrize("optimizer", MADE)
def test_what_is_exchanged_lies_behind_the_buffers_and_no_saved_model_has_it(optimizer: str) -> None:
    agent, keys = Agent(optimizer), MADE[optimizer][1]
    agent.train(range(3))
    plain = read_layout(agent.net)
    assert agent.layout.rows()[: len(plain.rows())] == plain.rows()
    states = agent.layout.rows()[len(plain.rows()) :]
    wanted = [f"{name}/{key}" for name in ("unused", "conv.weight", "norm.weight", "norm.bias") for key in keys]
    assert [row[0] for row in states] == wanted
    assert {row[2] for row in states} <= {"updater"}
    assert agent.layout.local.rows() == plain.local.rows()
    said = ModelLayout.of(agent.layout.rows(), agent.layout.parameters, agent.layout.local.rows())
    flat = agent.read()
    assert set(said.state_dict(flat)) == set(said.model_tensors(flat)) == set(agent.net.state_dict())
    for name, one in said.updater_tensors(flat).items():
        parameter, _, key = name.partition("/")
        held = agent.optimizer.state[dict(agent.net.named_parameters())[parameter]]
        value = held.get(key, torch.zeros(one.shape))  # of `unused` there is nothing
        assert bytes(one.data) == value.contiguous().numpy().tobytes()


def test_a_momentum_in_another_order_of_memory_is_turned() -> None:
    agent, other = Agent("momentum"), Agent("momentum")
    agent.train(range(2))
    held = agent.optimizer.state[agent.net.conv.weight]
    other.take(agent.read())
    held["momentum_buffer"] = held["momentum_buffer"].contiguous()
    assert agent.read().tobytes() == other.read().tobytes()
    assert held["momentum_buffer"].stride() == agent.net.conv.weight.stride()


def test_two_optimisers_of_one_parameter_are_refused() -> None:
    model, optimizers = nn.Linear(2, 1), Optimizers()
    for _ in range(2):
        optimizers.add(MADE["adam"][0](model.parameters()))
    with pytest.raises(ConfigError, match=r"^two optimizers have one parameter: shape=\[1, 2\].*method.updater = \"keep\"$"):
        read_layout(model, optimizers)


class Mine(torch.optim.Adam):
    """May keep more than Adam does."""


@pytest.mark.parametrize("kind", [torch.optim.Adagrad, torch.optim.NAdam, Mine])
def test_other_optimisers_are_refused_by_name(kind: type[torch.optim.Optimizer]) -> None:
    with pytest.raises(
        ConfigError, match=rf"^method dl4j-averaging averages.*optimizer=.*\.{kind.__name__}; take one of these"
    ):
        check_exchanged(kind(nn.Linear(2, 1).parameters()), "dl4j-averaging")
