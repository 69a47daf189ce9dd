"""The papers' nets: their sizes against figures of others, one step and one exchange each, and what of them is exchanged."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
import torchvision.models as theirs
from torch import nn
from torch.nn import functional

from mpca import models
from mpca.agent.layout import read_layout
from mpca.agent.torch_trainer import TorchTrainer
from mpca.errors import ConfigError
from mpca.methods import MPCA
from mpca.models.initialisation import build, he_normal

pytestmark = pytest.mark.long

#: What torchvision publishes of its trained weights, of nets built by its own functions.
PUBLISHED = {
    "alexnet": theirs.AlexNet_Weights,
    "googlenet": theirs.GoogLeNet_Weights,
    "resnet34": theirs.ResNet34_Weights,
    "resnet152": theirs.ResNet152_Weights,
    "vgg_a": theirs.VGG11_Weights,
}
CIFAR = [name for name in models.MODELS if models.INPUTS[name] == (3, 32, 32)]
LARGE = ("alexnet", "resnet152", "vgg_a")
MIB = 1 << 20


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def without_numbers(name: str, **options) -> nn.Module:
    """The model's shapes alone; VGG-A has half a gigabyte of numbers."""
    with torch.device("meta"):
        return models.create(name, **options)


def test_every_model_of_the_table_is_looked_at_here() -> None:
    small = {"digits_convnet", "digits_mlp", "mixture_mlp", "warped_convnet", "warped_resnet", "warped_resnet_plain"}
    assert {*CIFAR, *PUBLISHED, *small} == set(models.MODELS) == set(models.INPUTS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in sorted(PUBLISHED)]
)
def test_an_imagenet_net_has_the_published_number_of_parameters(name: str) -> None:
    meta = PUBLISHED[name].DEFAULT.meta
    model = models.create(name)
    assert parameters(model) == meta["num_params"]
    exchange(model, name, classes=1000)
    check_layout(model)


@pytest.mark.parametrize("name", CIFAR)
def test_a_cifar_net_has_as_many_parameters_as_its_layers(name: str) -> None:
    model = models.create(name)
    depth = int(name.removeprefix("resnet"))
    each = (depth - 2) // 3  # layers of a stage; all of a stage's but the very first have its width on both sides
    convolutions = 9 * (3 * 16 + each * 16 * 16 + 16 * 32 + (each - 1) * 32 * 32 + 32 * 64 + (each - 1) * 64 * 64)
    norms = 2 * (16 + each * (16 + 32 + 64))
    assert parameters(model) == convolutions + norms + 64 * 10 + 10
    # a layer is a convolution or the last, linear one (shortcuts of option A have none): that is what the name counts
    assert sum(isinstance(one, (nn.Conv2d, nn.Linear)) for one in model.modules()) == depth
    exchange(model, name, classes=10)
    check_layout(model)


@pytest.mark.parametrize("name", ["digits_convnet", "digits_mlp"])
def test_a_small_net_is_exchanged_as_the_large_ones(name: str) -> None:
    exchange(models.create(name), name, classes=10)


def step(model: nn.Module, name: str, classes: int) -> None:
    """One forward and backward pass of one image of the real size reaches every parameter."""
    logits = model.train()(torch.randn(1, *models.INPUTS[name]))
    assert logits.shape == (1, classes)
    functional.cross_entropy(logits, torch.tensor([3])).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
    assert sum(parameter.grad.abs().max() > 0 for parameter in model.parameters()) > 0.9 * len(list(model.parameters()))


def exchange(model: nn.Module, name: str, classes: int) -> None:
    """Two agents' first exchange, in this process: a step of one image each, their mean, and a pull halfway towards it.

    The agents' own trainer and the method's own algebra, without processes between them. Of each tensor some elements are
    looked at: VGG-A has half a gigabyte of them.
    """
    method, agents = MPCA(), []
    for one in (model, copy.deepcopy(model)):
        layout = read_layout(one)
        agents.append((one, TorchTrainer(layout, layout.plan(method.shards, layer_aligned=False), method.agent_side.how)))
    step(model, name, classes)
    functional.cross_entropy(agents[1][0](torch.randn(1, *models.INPUTS[name])), torch.tensor([1])).backward()
    for one, _ in agents:
        torch.optim.SGD(one.parameters(), lr=1e-3).step()
        one.zero_grad(set_to_none=True)
    mine, others = plain = [_looked_at(one) for one, _ in agents]
    for shard in range(method.shards):
        total = _snapshot(agents[0][1], shard)
        total += _snapshot(agents[1][1], shard)
        total /= 2
        within = min(agents[0][1].bounds[shard + 1], agents[0][1].parameters) - agents[0][1].bounds[shard]
        joint = method.merge(method.start(total, max(0, within)), total)  # beta is 1: what was before has no weight
        for _, trainer in agents:
            trainer.install(shard, method.outgoing(joint), joint.k, "install")
            trainer.pull(((shard, method.agent_side.penalty(0.1, age=0)),))
    trained = {key for key, _ in model.named_parameters()}
    for (one, _), before in zip(agents, plain, strict=True):
        for key, value in _looked_at(one).items():
            expected = before[key]
            if key in trained:  # alpha is 0.5 at the first joint state, and gamma 0: half of the way to the mean
                expected = 0.5 * expected + 0.25 * (mine[key] + others[key])
            assert torch.allclose(value, expected, rtol=1e-5, atol=1e-7), key
    moved = sum(not torch.equal(mine[key], others[key]) for key in trained)
    assert moved > 0.9 * len(trained), "the agents did not go different ways"


def _looked_at(model: nn.Module) -> dict[str, torch.Tensor]:
    """Up to some thousand elements of each tensor, spread over all of it."""
    return {key: value.reshape(-1)[:: 1 + value.numel() // 4999].clone() for key, value in model.state_dict().items()}


def _snapshot(trainer: TorchTrainer, shard: int) -> np.ndarray:
    out = np.empty(trainer.bounds[shard + 1] - trainer.bounds[shard], np.float32)
    trainer.snapshot(shard, out)
    return out


def check_layout(model: nn.Module) -> None:
    """All parameters, then the running statistics of each BatchNorm; its count of batches stays local."""
    layout = read_layout(model)
    norms = [one for one in model.modules() if isinstance(one, nn.BatchNorm2d)]
    assert layout.parameters == parameters(model)
    assert layout.total == layout.parameters + sum(2 * one.num_features for one in norms)
    assert len(layout.local.rows()) == len(norms)
    assert not layout.tied
    exchanged = {entry.name for entry in layout.entries} | set(layout.local.rows())
    assert exchanged == set(model.state_dict())


def test_sizes_are_those_of_the_papers_table_1_but_for_what_is_written_beside_them() -> None:
    sizes = {name: parameters(without_numbers(name)) * 4 / MIB for name in ("resnet110", "resnet34", "resnet152", "vgg_a")}
    assert round(sizes["resnet110"]) == 7
    assert round(sizes["resnet34"]) == 83
    assert round(sizes["vgg_a"]) == 507
    assert round(sizes["vgg_a"] - (4096 * 1000 + 1000) * 4 / MIB) == 491
    assert round(sizes["resnet152"], 1) == 229.6  # Table 1 has 223: mpca/models/imagenet.py


def test_classes_change_the_last_layer_alone() -> None:
    assert parameters(without_numbers("resnet34", classes=20)) == 21_797_672 - 980 * 513
    assert models.create("resnet20", classes=7)(torch.zeros(2, 3, 64, 64)).shape == (2, 7), "any size of image"
    for name in ("resnet110", "vgg_a"):
        with pytest.raises(ConfigError, match=r"model.classes = 0: must be 1 or more"):
            models.check(name, {"classes": 0})
    with pytest.raises(ConfigError, match=r"unknown key model.clases: did you mean 'classes'"):
        models.check("googlenet", {"clases": 10})


def test_option_a_shortcuts_take_every_other_pixel_and_add_empty_channels() -> None:
    model = models.create("resnet20").eval()
    first = model.stages[1][0]
    nn.init.zeros_(first.bn2.weight)  # the branch says nothing: what comes out is the shortcut
    images = torch.rand(2, 16, 8, 8)
    out = first(images)
    assert torch.equal(out[:, 8:24], images[:, :, ::2, ::2])
    assert not out[:, :8].any()
    assert not out[:, 24:].any()


def test_initial_numbers_have_he_et_als_deviation_and_come_from_the_seed() -> None:
    def made(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return models.create("googlenet", classes=10)

    model = made(1)
    drawn = 0
    for one in model.modules():
        if isinstance(one, nn.Conv2d) and one.weight.numel() > 100_000:
            inputs = one.in_channels * one.kernel_size[0] * one.kernel_size[1]
            assert one.weight.std().item() == pytest.approx(math.sqrt(2 / inputs), rel=0.02)
            assert abs(one.weight.mean().item()) < 0.01 * one.weight.std().item() * 3
            drawn += 1
        elif isinstance(one, nn.BatchNorm2d):
            assert torch.equal(one.weight, torch.ones_like(one.weight))
            assert not one.bias.any()
            assert not one.running_mean.any()
            assert torch.equal(one.running_var, torch.ones_like(one.running_var))
            assert one.num_batches_tracked == 0
    assert drawn > 5
    assert not model.fc.bias.any()
    again, other = made(1).state_dict(), made(2).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())
    assert not torch.equal(other["fc.weight"], again["fc.weight"])


def test_a_module_without_a_rule_is_named() -> None:
    with pytest.raises(TypeError, match="name='1', type=LayerNorm"):
        he_normal(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)))
    with pytest.raises(TypeError, match="type=LSTM"):
        build(lambda: nn.LSTM(3, 4))
