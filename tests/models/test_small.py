"""The small nets: names, sizes, and that they can learn what they are for."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch

from mpca import data, models
from mpca.config.sections import OptimizerConfig
from mpca.errors import ConfigError
from mpca.models.training import create_optimizer, evaluate_classifier, train_step


@pytest.mark.parametrize("name", ["digits_convnet", "digits_mlp"])
def test_the_small_models_take_a_batch_of_digits(name: str) -> None:
    assert models.create(name)(torch.zeros(5, *models.INPUTS[name])).shape == (5, 10)


def test_the_convnet_has_buffers_and_is_small() -> None:
    model = models.create("digits_convnet")
    # 9*32 + 9*32*64 + 9*64*64 weights, two numbers a channel of BatchNorm, 256*10 + 10 of the last layer
    assert sum(p.numel() for p in model.parameters()) == 288 + 18432 + 36864 + 2 * (32 + 64 + 64) + 2570
    assert any("running_mean" in name for name, _ in model.named_buffers())


@pytest.mark.parametrize(
    ("name", "data_set", "parameters", "buffers"),
    [
        # weights and biases, layer by layer; a channel of BatchNorm has two parameters and two numbers in buffers
        ("mixture_mlp", "mixture", 33 * 64 + 65 * 64 + 65 * 10, 0),
        ("warped_convnet", "warped-digits", 10 * 8 + 73 * 16 + 145 * 56 + 57 * 10, 0),
        ("warped_resnet", "warped-digits", 9 * 16 + 4 * 144 * 16 + 5 * 2 * 16 + 145 * 10, 5 * 2 * 16),
        ("warped_resnet_plain", "warped-digits", 10 * 16 + 4 * 145 * 16 + 145 * 10, 0),
    ],
)
def test_the_nets_of_computed_data_take_a_batch_and_have_their_size(
    name: str, data_set: str, parameters: int, buffers: int
) -> None:
    model = models.create(name)
    images, labels = data.load(data_set, "test")[:7]
    assert images.shape[1:] == models.INPUTS[name]
    assert model(images).shape == (len(labels), 10)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert sum(b.numel() for b in model.buffers() if b.is_floating_point()) == buffers


@pytest.mark.parametrize(
    ("name", "options", "hint"),
    [
        ("digits_convent", {}, "did you mean 'digits_convnet'"),
        ("digits_mlp", {"hiden": 3}, "unknown key model.hiden: did you mean 'hidden'"),
        ("digits_mlp", {"hidden": "many"}, "model.hidden = 'many': must be a whole number"),
        ("digits_mlp", {"hidden": 0}, "model.hidden = 0: must be 1 or more"),
    ],
)
def test_a_model_or_option_that_there_is_not_is_refused(name: str, options: dict, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        models.check(name, options)


def test_options_that_came_as_text_are_read_by_their_type() -> None:
    assert sum(p.numel() for p in models.create("digits_mlp", hidden="4").parameters()) == 64 * 4 + 4 + 4 * 10 + 10


def test_an_unknown_optimizer_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'adam'"):
        create_optimizer(models.create("digits_mlp"), "adan", lr=0.1)


@pytest.mark.parametrize(
    ("name", "momentum", "kind", "has"),
    [
        ("adam", 0.0, torch.optim.Adam, {}),
        ("adamw", 0.0, torch.optim.AdamW, {}),
        ("sgd", 0.0, torch.optim.SGD, {"momentum": 0.0, "nesterov": False}),
        ("sgd", 0.5, torch.optim.SGD, {"momentum": 0.5, "nesterov": False}),
        ("nesterov", 0.5, torch.optim.SGD, {"momentum": 0.5, "nesterov": True}),
    ],
)
def test_an_optimizer_has_the_configurations_settings_and_none_of_torchs_own(
    name: str, momentum: float, kind: type, has: dict
) -> None:
    config = OptimizerConfig(name=name, lr=0.25, momentum=momentum)
    made = create_optimizer(models.create("digits_mlp"), **asdict(config))
    assert type(made) is kind
    (group,) = made.param_groups
    assert {key: group[key] for key in ("lr", "weight_decay", *has)} == {"lr": 0.25, "weight_decay": 0.0, **has}


@pytest.mark.slow
def test_two_hundred_updates_on_one_core_reach_five_percent() -> None:
    torch.manual_seed(0)
    model, (images, labels) = models.create("digits_convnet"), data.load("digits", "train").tensors
    optimizer = create_optimizer(model, "adam", lr=1e-3)
    for _ in range(200):
        batch = torch.randint(len(labels), (32,))
        train_step(model, optimizer, images[batch], labels[batch])
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    result = evaluate_classifier(models.create("digits_convnet"), state, *data.load("digits", "test").tensors)
    assert result["error"] < 0.05
    assert result["loss"] < 0.2
