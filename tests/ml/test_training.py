"""The train function of `MpcaEstimator`, without a run around it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import mpca
from mpca.ml.code import Recipe
from mpca.ml.training import train
from tests.ml import nets


@pytest.mark.parametrize(
    ("model", "batch_size", "sizes", "trained"),
    [
        (nets.two, 4, [4, 4, 1], [4, 4]),
        (nets.two, 4, [4, 3], [4, 3]),
        (nets.Line, 4, [1], [1]),
        (nets.Line, 1, [1, 1], [1, 1]),
    ],
    ids=["rest", "larger", "alone", "one-by-one"],
)
def test_a_last_batch_of_one_row_is_left_out(
    monkeypatch: pytest.MonkeyPatch, model: Any, batch_size: int, sizes: list[int], trained: list[int]
) -> None:
    monkeypatch.setattr(mpca, "dataset", lambda *_, **__: [(torch.ones(size, 2), torch.zeros(size).long()) for size in sizes])
    seen: list[int] = []

    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        seen.append(len(labels))
        return cross_entropy(outputs, labels)

    train(Recipe(model, loss, torch.optim.SGD, {}, {"lr": 0.1}), batch_size, epochs=1)
    assert seen == trained


def test_a_loss_with_weights_of_classes_is_where_the_model_is(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = torch.device("meta")  # as a GPU would be
    monkeypatch.setattr(mpca, "device", lambda: elsewhere)
    monkeypatch.setattr(mpca, "dataset", lambda *_, **__: [])
    loss = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]))
    train(Recipe(nets.Line, loss, torch.optim.SGD, {}, {"lr": 0.1}), 4, epochs=1)
    assert loss.weight is not None
    assert loss.weight.device == elsewhere
