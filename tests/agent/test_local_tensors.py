"""What stays local is read and replaced as it is in the model, in any number of pieces."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mpca.agent.layout import read_layout
from mpca.agent.torch_trainer import TorchTrainer
from mpca.errors import ConfigError
from mpca.methods import How
from mpca.storage import ModelLayout


class Net(nn.Module):
    """An EMA teacher, BatchNorm's counter, a bfloat16 base, flags, and a frozen alias of what trains."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.teacher = nn.Linear(3, 3).requires_grad_(False)
        self.base = nn.Parameter(torch.randn(5).to(torch.bfloat16), requires_grad=False)
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.shown = nn.Parameter(self.student.weight.data, requires_grad=False)


def words(trainer: TorchTrainer) -> np.ndarray:
    parts = []
    for shard in range(3, len(trainer.bounds) - 1):
        out = np.full(trainer.bounds[shard + 1] - trainer.bounds[shard], np.nan, np.float32)
        trainer.snapshot(shard, out)
        parts.append(out)
    return np.concatenate(parts)


@pytest.fixture(params=[1, 2, 3, 7, 1000])
def net(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mpca.agent.local_tensors._LEAST_PIECE", request.param)
    torch.manual_seed(2)
    model = Net()
    layout = read_layout(model)
    return model, layout, TorchTrainer(layout, layout.plan(3, False), How.PULL)


def test_they_are_read_as_they_are_now(net) -> None:
    model, layout, trainer = net
    assert layout.tied == {"shown": "student.weight"}
    model.norm.num_batches_tracked += 70000
    model.teacher.weight.data = torch.full((3, 3), float("nan"))  # whatever it is
    model.mask = torch.tensor([False, True, True])  # assigned anew
    hello = ModelLayout.of(layout.rows(), layout.parameters, layout.local.rows(), layout.tied)
    known = hello.with_words(words(trainer))
    assert sorted(known.local) == ["base", "mask", "norm.num_batches_tracked", "teacher.bias", "teacher.weight"]
    for name, (dtype, shape, raw) in known.local.items():
        tensor = model.state_dict()[name]
        assert (dtype, shape) == (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        assert raw == tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(), name


def test_they_are_replaced_and_training_parameters_are_not(net) -> None:
    model, _, trainer = net
    torch.manual_seed(9)
    other = Net()
    other.norm.num_batches_tracked += 41
    layout = read_layout(other)
    given, before = words(TorchTrainer(layout, layout.plan(3, False), How.PULL)), model.student.weight.detach().clone()
    first = trainer.bounds[3]
    for shard in range(3, len(trainer.bounds) - 1):
        trainer.install(shard, given[trainer.bounds[shard] - first : trainer.bounds[shard + 1] - first], 0, "replace")
    for name in ("base", "mask", "norm.num_batches_tracked", "teacher.bias", "teacher.weight"):
        assert torch.equal(model.state_dict()[name], other.state_dict()[name]), name
    assert torch.equal(model.student.weight, before)


def test_a_local_tensor_that_changed_its_shape_is_named(net) -> None:
    model, _, trainer = net
    model.mask = torch.zeros(4, dtype=torch.bool)
    with pytest.raises(ConfigError, match=r"the model changed after attach: tensor=mask was torch.bool \[3\]"):
        words(trainer)


def test_pieces_are_as_large_as_the_largest_shard_and_not_tiny() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("table", torch.zeros(9 << 20, dtype=torch.uint8))
    layout = read_layout(model)
    assert layout.bounds(layout.plan(3, False)) == [0, 2, 4, 6, 6 + (4 << 20), 6 + (9 << 19)]
    large = layout.local.edges(100, 5 << 20)
    assert large == [100 + (9 << 19)]
    assert read_layout(nn.Linear(2, 2)).bounds(layout.plan(3, False)) == [0, 2, 4, 6], "none: nothing behind the model"


@pytest.mark.parametrize(("length", "kept"), [(512 << 20, True), ((512 << 20) + 1, False)])
def test_half_a_gibibyte_stays_with_the_model(length: int, kept: bool) -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("table", torch.zeros(1, dtype=torch.uint8).expand(length))  # takes one byte
    assert ("table" in read_layout(model).local.rows()) is kept


def test_what_a_file_cannot_hold_and_what_is_too_large_is_left_out_by_name(monkeypatch, caplog) -> None:
    monkeypatch.setattr("mpca.agent.local_tensors.LOCAL_LIMIT_BYTES", 40)
    model = Net()
    model.register_buffer("waves", torch.zeros(1, dtype=torch.complex64))
    rows = read_layout(model).local.rows()
    assert "waves" not in rows
    assert sum(length for _, _, length in rows.values()) <= 40
    assert "left out of saved models: tensor=waves, dtype=complex64, bytes=8, limit_bytes=40" in caplog.text
    assert "left out of saved models: tensor=teacher.weight, dtype=float32, bytes=36" in caplog.text
