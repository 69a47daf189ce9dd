"""A model that changes after attach is noticed at the next update, by name; one that only moves is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune

from mpca.agent.layout import read_layout
from mpca.agent.watch import ModelWatch
from mpca.errors import ConfigError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4))
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.head = nn.Linear(4, 2)
        self.back = nn.Linear(4, 4, bias=False)
        self.back.weight.data = self.body[0].weight.data  # tied by memory, not as one object
        self.register_buffer("average", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.average = self.average + 1
        return self.head(self.frozen(self.body(x)))


def watched() -> tuple[Net, torch.optim.Optimizer, ModelWatch]:
    model = Net()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    return model, optimizer, ModelWatch(model, [optimizer], read_layout(model))


def replace_head(model: Net) -> None:
    model.head = nn.Linear(4, 2)


def replace_parameter(model: Net) -> None:
    model.head.weight = nn.Parameter(torch.zeros(2, 4))


def remove_bias(model: Net) -> None:
    model.head.bias = None


def untie(model: Net) -> None:
    model.back.weight.data = model.back.weight.data.clone()


class Half(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m.frozen.requires_grad_(True), "parameter=frozen.weight was frozen and now requires a gradient"),
        (lambda m: m.frozen.bias.requires_grad_(True), "parameter=frozen.bias was frozen"),
        (replace_head, "parameter=head.weight was replaced"),
        (replace_parameter, "parameter=head.weight was replaced"),
        (remove_bias, "parameter=head.bias is gone"),
        (lambda m: m.body.append(nn.Linear(4, 4)), "new parameter=body.2.weight"),
        (lambda m: m.body[1].add_module("deep", nn.Linear(1, 1)), "new parameter=body.1.deep.weight"),
        (lambda m: m.register_parameter("extra", nn.Parameter(torch.zeros(1))), "new parameter=extra"),
        (lambda m: m.register_buffer("mean", torch.zeros(1)), "new buffer=mean"),
        (lambda m: prune.random_unstructured(m.head, "weight", 0.5), "new parameter=head.weight_orig"),
        (lambda m: prune.random_unstructured(m.body[0], "weight", 0.5), "new parameter=body.0.weight_orig"),
        (lambda m: parametrize.register_parametrization(m.head, "weight", Half()), "new parameter=head.parametrizations"),
        (untie, "parameter=back.weight had the memory of body.0.weight"),
    ],
)  # fmt: skip
def test_a_change_ends_with_the_name_and_the_remedy(change: Callable[[Net], object], says: str) -> None:
    model, _, watch = watched()
    watch.check()
    change(model)
    with pytest.raises(ConfigError, match=f"the model changed after attach: {says}.*before mpca.attach"):
        watch.check()


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m(torch.zeros(3, 4)),  # a buffer is assigned anew
        lambda m: m.eval(),
        lambda m: m.head.requires_grad_(False),  # it stays exchanged
        lambda m: m.register_buffer("cache", torch.zeros(1), persistent=False),
        lambda m: m.add_module("loss", nn.MSELoss()),
        lambda m: m.head.register_forward_hook(lambda *_: None),
        lambda m: setattr(m.head.weight, "data", m.head.weight.data.clone()),
    ],
)
def test_what_changes_nothing_of_the_exchange_passes(change: Callable[[Net], object]) -> None:
    model, _, watch = watched()
    for _ in range(2):
        change(model)
        watch.check()
    model.frozen.weight.requires_grad_(True)  # and it is still watched
    with pytest.raises(ConfigError, match=r"frozen.weight"):
        watch.check()


def test_buffers_may_share_their_memory() -> None:
    """They are exchanged once, under the first name; whether they stay together is the model's own affair."""
    model = nn.Linear(4, 2)
    mean = torch.zeros(2)
    for name in ("mean", "same"):
        model.register_buffer(name, mean)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    layout = read_layout(model)
    assert layout.tied == {"same": "mean"}
    watch = ModelWatch(model, [optimizer], layout)
    model.same = torch.ones(2)
    watch.check()


def test_a_layer_that_is_given_to_the_optimizer_later_passes_and_a_foreign_parameter_does_not() -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.body.parameters(), lr=0.1)
    watch = ModelWatch(model, [optimizer], read_layout(model))
    optimizer.add_param_group({"params": list(model.head.parameters()), "lr": 0.01})
    watch.check()
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(7))]})
    with pytest.raises(ConfigError, match=r"given a parameter after attach that the model does not have: shape=\[7\]"):
        watch.check()


def test_every_optimizer_is_watched_and_one_that_is_attached_later_too() -> None:
    model = Net()
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model.body, model.head)]
    watch = ModelWatch(model, optimizers, read_layout(model))
    watch.check()
    optimizers.append(torch.optim.SGD(model.head.parameters(), lr=0.01))
    watch.check()
    optimizers[1].add_param_group({"params": [nn.Parameter(torch.zeros(3, 2))]})
    with pytest.raises(ConfigError, match=r"given a parameter after attach that the model does not have: shape=\[3, 2\]"):
        watch.check()


def test_a_parameter_that_only_an_optimizer_has_at_attach_is_refused() -> None:
    """Such as the weights of a loss: they would train in every agent on their own."""
    model, criterion = Net(), nn.Linear(2, 5, bias=False)
    optimizer = torch.optim.Adam([*model.head.parameters(), *criterion.parameters()])
    with pytest.raises(ConfigError, match=r"no attached model has: optimizer=Adam, shape=\[5, 2\].*mpca.attach\(\[model, crit"):
        ModelWatch(model, [optimizer], read_layout(model))
    criterion.requires_grad_(False)
    ModelWatch(model, [optimizer], read_layout(model))
    both = nn.ModuleDict({"model": model, "criterion": criterion.requires_grad_(True)})
    ModelWatch(both, [optimizer], read_layout(both))
