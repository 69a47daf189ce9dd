"""Memory orders and overlaps, against strides and addresses written down by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mpca.agent.layout import read_layout
from mpca.agent.tensor_memory import flat_view, is_dense, memory_order
from mpca.errors import ConfigError

GRID = torch.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("tensor", "order"),
    [
        (GRID, (0, 1, 2)),
        (GRID.permute(2, 0, 1), (1, 2, 0)),
        (GRID.permute(1, 2, 0), (2, 0, 1)),
        (torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last), (0, 2, 3, 1)),
        (torch.zeros(2, 3, 2, 4, 5).to(memory_format=torch.channels_last_3d), (0, 2, 3, 4, 1)),
        (GRID.permute(2, 0, 1)[:, :1, :], (2, 0, 1)),  # what has one element comes last
        (torch.tensor(1.0), ()),
        (torch.zeros(0, 3).t(), (0, 1)),
    ],
)
def test_order_is_of_dimensions_from_the_slowest_to_the_fastest(tensor: Tensor, order: tuple[int, ...]) -> None:
    assert memory_order(tensor) == order


def test_flat_view_is_the_memory_itself() -> None:
    turned = GRID.clone().permute(2, 0, 1)
    view = flat_view(turned)
    assert view.tolist() == list(range(24))
    view[5] = -1.0  # element (0, 1, 1) of the grid
    assert turned[1, 0, 1] == -1.0


@pytest.mark.parametrize("tensor", [GRID[:, :, ::2], GRID[:, 0], torch.zeros(1).expand(4), GRID.as_strided((3, 3), (1, 1))])
def test_gaps_and_repeats_are_not_dense(tensor: Tensor) -> None:
    assert not is_dense(tensor)


class Shared(nn.Module):
    """A head of its own over memory of `big`: the elements that `pick` names."""

    def __init__(self, pick, as_buffer: bool = False) -> None:
        super().__init__()
        self.big = nn.Parameter(torch.zeros(4, 3))
        if as_buffer:
            self.register_buffer("head", pick(self.big.data))
        else:
            self.head = nn.Parameter(pick(self.big.data))


@pytest.mark.parametrize("as_buffer", [False, True])
@pytest.mark.parametrize(
    "pick",
    [lambda t: t[0:1], lambda t: t[3], lambda t: t.view(-1)[5:8], lambda t: t.view(-1), lambda t: t.t()],
    ids=["first", "last", "inside", "flattened", "turned"],
)
def test_what_lies_in_another_tensor_is_refused_by_both_names(pick, as_buffer: bool) -> None:
    with pytest.raises(ConfigError, match=r"two tensors overlap in memory: (big and head|head and big)"):
        read_layout(Shared(pick, as_buffer))


def test_strides_of_a_dimension_with_one_element_make_no_other_tensor() -> None:
    memory = torch.zeros(3)
    one, other = memory.view(1, 3), memory.as_strided((1, 3), (1, 1))
    assert one.stride() != other.stride()
    layout = read_layout(nn.ParameterDict({"one": one, "other": other}))
    assert (layout.parameters, layout.tied) == (3, {"other": "one"})


def test_an_overlap_behind_a_longer_tensor_is_found() -> None:
    """Sorted by address, the two that overlap need not be neighbours."""
    memory = torch.zeros(10)
    model = nn.ParameterDict({"long": memory[0:8], "short": memory[1:2], "late": memory[6:10]})
    with pytest.raises(ConfigError, match="long and short"):
        read_layout(model)
    with pytest.raises(ConfigError, match="long and late"):
        read_layout(nn.ParameterDict({"long": memory[0:8], "late": memory[6:10]}))


def test_one_element_that_two_share_is_an_overlap() -> None:
    memory = torch.zeros(6)
    with pytest.raises(ConfigError, match="first and second"):
        read_layout(nn.ParameterDict({"first": memory[0:4], "second": memory[3:6]}))


def test_neighbours_in_one_memory_are_exchanged_each() -> None:
    """As cuDNN's recurrent layers and other flat optimisers lay them out."""
    memory = torch.zeros(10)
    layout = read_layout(nn.ParameterDict({"a": memory[0:4], "b": memory[4:10].view(2, 3)}))
    assert (layout.parameters, layout.tied) == (10, {})
