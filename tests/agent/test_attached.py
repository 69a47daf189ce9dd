"""Several models as one: what they are called, what they share, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mpca.agent.attached import AttachedModels, several
from mpca.agent.layout import read_layout
from mpca.errors import ConfigError


def attached(*calls) -> AttachedModels:
    models = AttachedModels()
    for call in calls:
        models.add(call, begun=False)
    return models


def test_a_model_alone_is_exchanged_as_it_is() -> None:
    model = nn.Linear(2, 1)
    assert attached(model).whole is model
    assert attached([model]).whole is model
    assert attached(model, model, [model]).whole is model, "attached again, with another optimiser"
    container = nn.ModuleDict({"a": model})
    assert attached(container).whole is container, "a ModuleDict is a model"


@pytest.mark.parametrize(
    ("calls", "names"),
    [
        (lambda g, d: [[g, d]], ["0.weight", "0.bias", "1.weight"]),
        (lambda g, d: [g, d], ["0.weight", "0.bias", "1.weight"]),
        (lambda g, d: [{"g": g, "d": d}], ["g.weight", "g.bias", "d.weight"]),
        (lambda g, d: [{"g": g}, {"d": d}], ["g.weight", "g.bias", "d.weight"]),
        (lambda g, d: [g, {"d": d}, g], ["0.weight", "0.bias", "d.weight"]),
        (lambda g, d: [{"g": g}], ["g.weight", "g.bias"]),
    ],
)
def test_several_are_called_as_a_module_dict_has_them(calls, names: list[str]) -> None:
    g, d = nn.Linear(2, 3), nn.Linear(3, 1, bias=False)
    models = attached(*calls(g, d))
    assert list(models.whole.state_dict()) == names
    assert [row[0] for row in read_layout(models.whole).rows()] == names
    assert {id(one) for one in models.parameters()} == {id(one) for one in models.whole.parameters()}
    assert read_layout(models.whole).entries[0].source is g.weight


def test_what_two_models_share_is_exchanged_once() -> None:
    trunk = nn.Linear(4, 4, bias=False)
    actor, critic = nn.Sequential(trunk, nn.Linear(4, 2)), nn.Sequential(trunk, nn.Linear(4, 1))
    layout = read_layout(attached({"actor": actor, "critic": critic}).whole)
    assert [entry.name for entry in layout.entries] == [
        "actor.0.weight", "actor.1.weight", "actor.1.bias", "critic.1.weight", "critic.1.bias",
    ]  # fmt: skip
    assert layout.tied == {"critic.0.weight": "actor.0.weight"}
    assert layout.total == 16 + 8 + 2 + 4 + 1


def test_a_model_is_known_by_its_parts_and_under_its_wrapper() -> None:
    gan = nn.ModuleDict({"g": nn.Linear(1, 1), "d": nn.Linear(1, 1)})
    models = attached(gan, gan["g"], nn.DataParallel(gan["d"]))
    models.add(gan["d"], begun=True)
    models.add([gan["g"], gan], begun=True)
    assert models.whole is gan
    wrapped = nn.DataParallel(gan["g"])
    assert attached({"g": wrapped}, {"g": gan["g"]}, gan["g"]).whole["g"] is wrapped


@pytest.mark.parametrize(
    ("calls", "says"),
    [
        (lambda g, d: [torch.optim.SGD(g.parameters())], r"not a model: type=SGD; mpca.attach\(model, optimizer\) takes"),
        (lambda g, d: [[g, None]], "not a model: type=NoneType"),
        (lambda g, d: [[]], "no model: mpca.attach was given an empty list"),
        (lambda g, d: [{"a": g}, {"a": d}], "two models have one name: name='a'; give each its own"),
        (lambda g, d: [{"1": g}, d], "two models have one name: name='1'"),
        (lambda g, d: [{"a": g, "b": g}], "attached twice: as 'a', or as a part of it, and as 'b'"),
        (lambda g, d: [g, {"b": g}], "attached twice: as '0', or as a part of it, and as 'b'"),
        (lambda g, d: [{"a.b": g, "c": d}], r"not a name for a model: .*names=\['a.b', 'c'\]; use other names, as in mpca"),
        (lambda g, d: [{"": g}], "not a name for a model"),
        (lambda g, d: [{"type": g}], "not a name for a model: .*type"),
        (lambda g, d: [{3: g}], "not a name for a model"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(calls, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        _ = attached(*calls(nn.Linear(1, 1), nn.Linear(1, 1))).whole


def test_a_model_that_comes_after_the_exchange_has_begun_is_refused_by_what_it_is() -> None:
    models = attached(nn.Linear(2, 1))
    with pytest.raises(
        ConfigError, match=r"model=Conv2d, parameters=2, first=weight \[4, 3, 1, 1\]; make all .* before the first"
    ):
        models.add(nn.Conv2d(3, 4, 1), begun=True)
    assert isinstance(models.whole, nn.Linear)


def test_one_a_list_and_a_dict_are_several() -> None:
    assert [several(one) for one in (1, [1, 2], (3,), {"a": 4})] == [[1], [1, 2], [3], [4]]
