"""Names without wrappers, whatever wraps what; a module that is only called like a wrapper's keeps its name."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mpca.agent.names import own_names, unwrapped


def plain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")


def inside(model: nn.Module) -> nn.Module:
    model[1] = nn.DataParallel(compiled(model[1]))
    return model


@pytest.mark.parametrize(
    "wrap",
    [
        compiled,
        nn.DataParallel,
        inside,
        lambda model: compiled(nn.DataParallel(inside(model))),
    ],
)
def test_a_wrapped_model_has_the_names_of_the_model_inside(wrap) -> None:
    model = wrap(plain())
    own = own_names(model)
    wrapped = list(model.state_dict())
    assert wrapped != list(plain().state_dict())
    assert [own(name) for name in wrapped] == list(plain().state_dict())
    assert type(unwrapped(model)) is nn.Sequential


def test_a_module_of_ones_own_keeps_its_name() -> None:
    model = nn.Module()
    model.module = nn.Linear(1, 1)
    model._orig_mod = nn.Linear(1, 1)
    average = torch.optim.swa_utils.AveragedModel(nn.Linear(1, 1))
    for one in (model, average, nn.ModuleDict({"module": nn.Linear(1, 1)})):
        own = own_names(one)
        assert [own(name) for name in one.state_dict()] == list(one.state_dict())
        assert unwrapped(one) is one
