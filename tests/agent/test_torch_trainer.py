"""Tricky models behind the Trainer port, against the algorithm in numpy on one flat vector."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from mpca.agent.layout import read_layout
from mpca.agent.torch_trainer import TorchTrainer
from mpca.algorithm import correct, pull, tilt
from mpca.errors import ConfigError
from mpca.methods import How
from mpca.storage import ModelLayout
from mpca.storage.tensors import RawTensor


class Tricky(nn.Module):
    """BatchNorm, a tied pair, a frozen layer, a parameter that is never used, a scalar, and a buffer that is reassigned."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.back = nn.Linear(4, 3, bias=False)
        self.back.weight = self.first.weight
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.unused = nn.Parameter(torch.randn(2))
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("average", torch.zeros(2))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.average = self.average * 0.5 + 1  # a new tensor under the same name
        return self.frozen(self.norm(self.first(x))) * self.scale + self.back(x)


def flat(model: nn.Module) -> np.ndarray:
    """The flat vector, written down name by name."""
    names = ["unused", "scale", "first.weight", "first.bias", "norm.weight", "norm.bias"]
    buffers = ["average", "norm.running_mean", "norm.running_var"]
    state = model.state_dict()
    return np.concatenate([state[name].numpy().reshape(-1) for name in names + buffers])


PARAMETERS = 2 + 1 + 12 + 3 + 3 + 3
TOTAL = PARAMETERS + 2 + 3 + 3


def make(how: How = How.PULL, shards: int = 3, layer_aligned: bool = False) -> tuple[nn.Module, TorchTrainer]:
    torch.manual_seed(3)
    model = Tricky()
    layout = read_layout(model)
    return model, TorchTrainer(layout, layout.plan(shards, layer_aligned), how)


def snapshot(trainer: TorchTrainer, shard: int) -> np.ndarray:
    out = np.full(trainer.bounds[shard + 1] - trainer.bounds[shard], np.nan, np.float32)
    trainer.snapshot(shard, out)
    return out


def whole(trainer: TorchTrainer) -> np.ndarray:
    return np.concatenate([snapshot(trainer, shard) for shard in range(trainer._plan.shards)])


def step(model: nn.Module) -> None:
    model(torch.randn(5, 4)).square().sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.01 * parameter.grad
                parameter.grad = None


def vector(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=TOTAL).astype(np.float32)


def test_layout_of_a_tricky_model() -> None:
    model = Tricky()
    layout = read_layout(model)
    assert [(entry.name, entry.kind) for entry in layout.entries] == [
        ("unused", "parameter"), ("scale", "parameter"), ("first.weight", "parameter"), ("first.bias", "parameter"),
        ("norm.weight", "parameter"), ("norm.bias", "parameter"),
        ("average", "buffer"), ("norm.running_mean", "buffer"), ("norm.running_var", "buffer"),
    ]  # fmt: skip
    assert (layout.parameters, layout.total) == (PARAMETERS, TOTAL)
    assert layout.tied == {"back.weight": "first.weight"}
    local = layout.local.rows()
    assert sorted(local) == ["frozen.bias", "frozen.weight", "norm.num_batches_tracked"]
    assert local["norm.num_batches_tracked"] == ["int64", [], 8]
    assert local["frozen.weight"] == ["float32", [3, 3], 36]
    everything = {entry.name for entry in layout.entries} | set(local) | set(layout.tied)
    assert everything == set(model.state_dict())


def test_hash_is_of_values_buffers_included() -> None:
    model, _ = make()
    before = read_layout(model).sha256()
    assert before == read_layout(make()[0]).sha256()
    model.norm.running_mean[0] = 1
    assert read_layout(model).sha256() != before


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("layer_aligned", [False, True])
def test_snapshot_is_the_flat_vector_wherever_it_is_cut(shards: int, layer_aligned: bool) -> None:
    model, trainer = make(shards=shards, layer_aligned=layer_aligned)
    step(model)
    np.testing.assert_array_equal(whole(trainer), flat(model))


@pytest.mark.parametrize("shards", [1, 3, 7])
def test_replacement_takes_everything_and_keeps_ties(shards: int) -> None:
    model, trainer = make(shards=shards)
    step(model)
    new = vector(1)
    for shard in range(shards):
        trainer.install(shard, new[trainer.bounds[shard] : trainer.bounds[shard + 1]], 5, "replace")
    np.testing.assert_array_equal(flat(model), new)
    assert model.back.weight is model.first.weight
    np.testing.assert_array_equal(model.state_dict()["back.weight"].numpy().reshape(-1), new[3:15])


@pytest.mark.parametrize("how", [How.PULL, How.MIX])
def test_pull_is_that_of_the_algorithm_and_leaves_buffers_and_other_shards_alone(how: How) -> None:
    model, trainer = make(how=how, shards=3)
    step(model)
    target, expected = vector(2), flat(model)
    for shard in (0, 1, 2):
        trainer.install(shard, target[trainer.bounds[shard] : trainer.bounds[shard + 1]], 1, "install")
    np.testing.assert_array_equal(flat(model), expected, "an arrival becomes the target, and moves nothing yet")
    for alphas in (((0, 0.5), (2, 0.05)), ((2, 0.7),)):
        trainer.pull(alphas)
        for shard, alpha in alphas:
            part = slice(trainer.bounds[shard], min(trainer.bounds[shard + 1], PARAMETERS))
            pull(expected[part], target[part], alpha)
    np.testing.assert_allclose(flat(model), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("shards", [1, 3])
def test_tilt_is_that_of_the_algorithm_for_one_optimisers_parameters(shards: int) -> None:
    model, trainer = make(how=How.TILT, shards=shards)
    step(model)
    before, target = flat(model), vector(2)
    for shard in range(shards):
        trainer.install(shard, target[trainer.bounds[shard] : trainer.bounds[shard + 1]], 1, "install")
    parameters = list(dict.fromkeys(model.parameters()))
    last = parameters[-1]
    for one in parameters:
        one.grad = torch.ones_like(one)
    parameters[1].grad = None
    optimizer = torch.optim.SGD(parameters[:-1], lr=1.0)
    trainer.tilt(tuple((shard, 3.0) for shard in range(shards)), optimizer)
    np.testing.assert_array_equal(flat(model), before, "the parameters stay")
    assert parameters[1].grad is None
    assert last.grad is not None
    assert (last.grad == 1).all(), "of another optimiser"
    for entry in trainer._entries:
        grad = entry.tensor.grad if entry.kind == "parameter" else None
        if grad is not None and entry.tensor is not last:
            part = slice(entry.offset, entry.offset + entry.size)
            expected = tilt(np.ones(entry.size, np.float32), before[part], target[part], 3.0)
            np.testing.assert_allclose(grad.permute(entry.order).reshape(-1).numpy(), expected, rtol=1e-5)


def test_gradients_of_another_layout_and_scale_are_tilted_too() -> None:
    weight = nn.Parameter(torch.zeros(2, 3))
    layout = read_layout(nn.ParameterList([weight]))
    trainer = TorchTrainer(layout, layout.plan(1, False), How.TILT)
    trainer.install(0, np.arange(6, dtype=np.float32), 1, "install")
    weight.grad = torch.ones(3, 2).T
    optimizer = torch.optim.SGD([weight], lr=1.0)
    optimizer.grad_scale = torch.tensor(4.0)
    trainer.tilt(((0, 0.5),), optimizer)
    assert weight.grad.tolist() == [[1.0, -1.0, -3.0], [-5.0, -7.0, -9.0]]


def test_target_was_copied_out_of_the_slot() -> None:
    model, trainer = make(shards=1)
    slot = vector(2)
    trainer.install(0, slot, 1, "install")
    slot[:] = np.nan  # the executor writes the next arrival
    trainer.pull(((0, 0.5),))
    assert np.isfinite(flat(model)).all()


def test_correction_is_that_of_the_algorithm_and_answers_the_last_snapshot() -> None:
    model, trainer = make(how=How.CORRECT, shards=1)
    for arrival in (vector(4), vector(5)):
        handed_over = snapshot(trainer, 0)
        step(model)
        expected = flat(model)
        correct(expected[:PARAMETERS], arrival[:PARAMETERS], handed_over[:PARAMETERS])
        trainer.install(0, arrival, 1, "install")
        np.testing.assert_allclose(flat(model), expected, rtol=1e-5, atol=1e-6)


def test_correction_without_a_snapshot_answers_the_start_or_the_last_arrival() -> None:
    model, trainer = make(how=How.CORRECT, shards=1)
    start, one, two = flat(model), vector(4), vector(5)
    step(model)
    moved = flat(model)
    for shard_state in (one, two):
        trainer.install(0, shard_state, 1, "install")
    progress = moved[:PARAMETERS] - start[:PARAMETERS]
    np.testing.assert_allclose(flat(model)[:PARAMETERS], two[:PARAMETERS] + progress, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shards", [6, TOTAL, TOTAL + 9])
def test_shards_of_buffers_alone_and_empty_ones_are_corrected_too(shards: int) -> None:
    model, trainer = make(how=How.CORRECT, shards=shards)
    arrival, handed_over = vector(4), whole(trainer)
    step(model)
    expected = flat(model)
    correct(expected[:PARAMETERS], arrival[:PARAMETERS], handed_over[:PARAMETERS])
    for shard in range(shards):
        trainer.install(shard, arrival[trainer.bounds[shard] : trainer.bounds[shard + 1]], 1, "install")
    np.testing.assert_allclose(flat(model), expected, rtol=1e-5, atol=1e-6)


def test_method_that_replaces_takes_buffers_too() -> None:
    model, trainer = make(how=How.REPLACE, shards=1)
    trainer.install(0, vector(6), 1, "install")
    np.testing.assert_array_equal(flat(model), vector(6))


def test_views_follow_parameters_that_were_moved() -> None:
    model, trainer = make(shards=2)
    for parameter in model.parameters():
        parameter.data = parameter.data.clone() + 1
    np.testing.assert_array_equal(whole(trainer), flat(model))
    for shard in (0, 1):
        trainer.install(shard, vector(7)[trainer.bounds[shard] : trainer.bounds[shard + 1]], 0, "replace")
    np.testing.assert_array_equal(flat(model), vector(7))


def test_parameter_of_another_shape_after_attach_is_an_error() -> None:
    model, trainer = make()
    model.unused.data = torch.zeros(5)
    with pytest.raises(ConfigError, match=r"a tensor changed after attach: parameter=unused, shape=\[5\]"):
        trainer.pull(((0, 0.5),))


def test_a_buffer_of_another_size_is_an_error_and_no_value_is_spread_over_it() -> None:
    model, trainer = make(shards=1)
    before = whole(trainer)
    model.average = torch.full((1,), 7.0)
    with pytest.raises(ConfigError, match=r"a tensor changed after attach: buffer=average, shape=\[1\].*it was \[2\]"):
        whole(trainer)
    with pytest.raises(ConfigError, match=r"buffer=average"):
        trainer.install(0, before, 1, "replace")


@pytest.mark.parametrize("change", [lambda m: m.to(torch.float64), lambda m: m.to(memory_format=torch.channels_last)])
def test_another_type_or_order_after_attach_is_an_error(change) -> None:
    model = nn.Conv2d(3, 4, 3)
    layout = read_layout(model)
    trainer = TorchTrainer(layout, layout.plan(1, False), How.PULL)
    change(model)
    with pytest.raises(ConfigError, match=r"a tensor changed after attach: parameter=weight.*before mpca.attach"):
        trainer.pull(((0, 0.5),))


def test_a_tensor_that_comes_to_overlap_after_attach_is_an_error() -> None:
    model, trainer = make()
    model.unused.data = model.first.weight.data.view(-1)[:2]
    with pytest.raises(ConfigError, match=r"overlap in memory: unused and first.weight"):
        trainer.pull(((0, 0.5),))


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_a_model_in_channels_last_travels_in_the_order_of_its_memory(shards: int) -> None:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1)).to(memory_format=torch.channels_last)
    layout = read_layout(model)
    assert layout.rows()[0] == ["0.weight", [4, 3, 3, 3], "parameter", 0, [0, 2, 3, 1]]
    assert layout.rows()[2] == ["1.weight", [2, 4, 1, 1], "parameter", 112], "one element high and wide: rows all the same"
    trainer = TorchTrainer(layout, layout.plan(shards, False), How.PULL)
    state = ModelLayout.of(layout.rows(), layout.parameters)
    for name, tensor in state.state_dict(whole(trainer)).items():
        np.testing.assert_array_equal(tensor, model.state_dict()[name].numpy(), name)
    new = {name: torch.randn(tensor.shape) for name, tensor in model.state_dict().items()}
    sent = state.flat({name: RawTensor("float32", tuple(t.shape), t.numpy().tobytes()) for name, t in new.items()})
    for shard in range(shards):
        trainer.install(shard, sent[trainer.bounds[shard] : trainer.bounds[shard + 1]], 1, "replace")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, new[name]), name
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert layout.sha256() != read_layout(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1))).sha256()


def test_training_goes_on_after_pulls_and_installs() -> None:
    """Changes in place must not trip autograd, nor lose a gradient that is being accumulated."""
    model, trainer = make(shards=1)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for version in range(1, 4):
        trainer.install(0, vector(version), version, "install")
        functional.mse_loss(model(torch.randn(5, 4)), torch.zeros(5, 3)).backward()
        optimizer.step()
        trainer.pull(((0, 0.1),))
    assert model.unused.grad is None
    assert np.isfinite(flat(model)).all()


def test_parameters_that_share_memory_without_being_one_are_exchanged_once() -> None:
    model = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    model["b"].weight.data = model["a"].weight.data
    layout = read_layout(model)
    assert ([entry.name for entry in layout.entries], layout.tied) == (["a.weight"], {"b.weight": "a.weight"})


def test_a_buffer_is_read_and_written_where_it_lies_now() -> None:
    """The same tensor as when it was last looked up, with other memory; then another tensor."""
    model, trainer = make(shards=1)
    for values in ([1.0, 2.0], [3.0, 4.0]):
        snapshot(trainer, 0)
        model.average.data = torch.tensor(values)
        assert snapshot(trainer, 0)[PARAMETERS:][:2].tolist() == values
    model.average = torch.tensor([5.0, 6.0])
    assert snapshot(trainer, 0)[PARAMETERS:][:2].tolist() == [5.0, 6.0]
    trainer.install(0, np.full(TOTAL, 7, np.float32), 1, "replace")
    assert model.average.tolist() == [7.0, 7.0]


def test_buffer_of_another_float_type_travels_as_float32() -> None:
    model = nn.Linear(1, 1, bias=False)
    model.register_buffer("wide", torch.tensor([0.5, 2.0], dtype=torch.float64))
    layout = read_layout(model)
    trainer = TorchTrainer(layout, layout.plan(1, False), How.PULL)
    out = np.empty(3, np.float32)
    trainer.snapshot(0, out)
    assert out[1:].tolist() == [0.5, 2.0]
    trainer.install(0, np.float32([1, 2, 3]), 0, "replace")
    assert model.wide.tolist() == [2.0, 3.0]
    assert model.wide.dtype == torch.float64


def _with(parameter: torch.Tensor) -> nn.Module:
    model = nn.Module()
    model.odd = nn.Parameter(parameter)
    return model


def _strided_buffer() -> nn.Module:
    model = nn.Linear(1, 1)
    model.register_buffer("mask", torch.zeros(1).expand(3))
    return model


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (nn.ReLU(), "the model has no trainable parameters: parameters=0"),
        (nn.Linear(1, 1).requires_grad_(False), "the model has no trainable parameters"),
        (_with(torch.zeros(2, dtype=torch.bfloat16)), "half precision: parameter=odd, dtype=torch.bfloat16"),
        (_with(torch.zeros(2, dtype=torch.float16)), "half precision: parameter=odd"),
        (_with(torch.zeros(2, dtype=torch.float64)), r"not float32: parameter=odd.*model\.float\(\)"),
        (_with(torch.zeros(2, dtype=torch.complex64)), "complex: parameter=odd"),
        (_with(torch.eye(2).to_sparse()), "sparse: parameter=odd"),
        (_with(torch.zeros(3, 4)[:, :2]), r"gaps in memory, or overlaps itself: parameter=odd.*strides=\[4, 1\]"),
        (_with(torch.zeros(1).expand(3)), r"gaps in memory, or overlaps itself: parameter=odd.*strides=\[0\]"),
        (_with(torch.zeros(2, device="meta")), "no storage yet: parameter=odd"),
        (nn.LazyLinear(2), "no storage yet: parameter=weight"),
        (_strided_buffer(), "a buffer has gaps in memory, or overlaps itself: buffer=mask"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_cannot_be_exchanged_is_refused_by_name(model: nn.Module, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_layout(model)
