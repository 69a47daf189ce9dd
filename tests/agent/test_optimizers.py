"""An optimiser whose state begins anew: the next update is the one that a new optimiser would take."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

from mpca.agent.optimizers import Optimizers

pytestmark = pytest.mark.long

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam": lambda weights: torch.optim.Adam(weights, lr=0.1),
    "nadam": lambda weights: torch.optim.NAdam(weights, lr=0.1),
    "adagrad": lambda weights: torch.optim.Adagrad(weights, lr=0.1, initial_accumulator_value=0.5),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
    "rprop": lambda weights: torch.optim.Rprop(weights, lr=0.1),
}


def update(weight: nn.Parameter, optimizer: torch.optim.Optimizer, gradient: float) -> torch.Tensor:
    weight.grad = torch.full_like(weight, gradient)
    optimizer.step()
    return weight.detach().clone()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_after_a_nan_the_next_update_is_that_of_a_new_optimiser(name: str) -> None:
    weight, other = (nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer = OPTIMIZERS[name]([weight])
    optimizers = Optimizers()
    optimizers.add(optimizer)
    optimizers.add(optimizer)
    for gradient in (0.5, -0.25, float("nan")):
        update(weight, optimizer, gradient)
    for _ in range(2):  # the state that it went back to is not the one that is trained on
        with torch.no_grad():
            weight.fill_(1.0)
            other.fill_(1.0)
        optimizers.reset()
        fresh = OPTIMIZERS[name]([other])
        for gradient in (0.5, 0.75):
            torch.testing.assert_close(update(weight, optimizer, gradient), update(other, fresh, gradient), rtol=0, atol=0)


def test_a_state_that_was_loaded_before_attach_is_what_it_goes_back_to() -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = OPTIMIZERS["adam"]([weight])
    update(weight, optimizer, 0.5)
    loaded = deepcopy(optimizer.state_dict()["state"])
    optimizers = Optimizers()
    optimizers.add(optimizer)
    update(weight, optimizer, float("nan"))
    optimizers.reset()
    torch.testing.assert_close(optimizer.state_dict()["state"], loaded)


def test_all_that_were_attached_begin_anew() -> None:
    weights = [nn.Parameter(torch.ones(3)) for _ in range(2)]
    attached = [OPTIMIZERS["adam"]([weight]) for weight in weights]
    optimizers = Optimizers()
    for weight, optimizer in zip(weights, attached, strict=True):
        optimizers.add(optimizer)
        update(weight, optimizer, 0.5)
    optimizers.reset()
    assert [len(optimizer.state) for optimizer in attached] == [0, 0]


def test_an_optimiser_that_was_made_and_is_not_attached_is_found_by_what_it_trains() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 3)
    optimizers = Optimizers()
    optimizers.add(OPTIMIZERS["momentum"](first.parameters()))
    assert optimizers.to_come(first.parameters()) == "", "or another test has left an optimiser"
    other = OPTIMIZERS["adam"](second.parameters())
    assert optimizers.to_come(first.parameters()) == "optimizer=Adam, parameters=2, first_shape=[3, 2]"
    assert optimizers.to_come([*first.parameters(), *second.parameters()]) == "", "it trains what is exchanged already"
    second.requires_grad_(False)
    assert optimizers.to_come(first.parameters()) == "", "it trains nothing"
    second.requires_grad_(True)
    optimizers.add(other)
    assert optimizers.to_come(first.parameters()) == ""
    assert list(optimizers)[1:] == [other]


def test_an_optimiser_that_nobody_has_any_more_does_not_count() -> None:
    optimizers, weight = Optimizers(), nn.Parameter(torch.ones(1))
    made = OPTIMIZERS["adam"]([weight])
    made.itself = made  # only the collector frees it
    assert optimizers.to_come([]) != ""
    del made
    assert optimizers.to_come([]) == ""
