from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.data import TensorDataset

from mpca.data.share import Share, share_of_epoch
from mpca.errors import ConfigError


class Squares:
    """The smallest map-style data set."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index, index * index


def share(dataset, batch_size: int = 4, **changes) -> Share:
    return Share(dataset, batch_size, **{"seed": 7, "agent": 0, "agents": 1, "incarnation": 0, "epochs": 1, **changes})


@pytest.mark.parametrize(("samples", "agents"), [(10, 1), (10, 3), (7, 7), (101, 8)])
def test_agents_together_see_every_sample_of_an_epoch_once(samples: int, agents: int) -> None:
    for epoch in range(3):
        # Not all of the same incarnation: a replaced agent must not take another's samples.
        shares = [
            share_of_epoch(samples, seed=5, agent=a, agents=agents, epoch=epoch, incarnation=a % 2) for a in range(agents)
        ]
        assert sorted(itertools.chain(*(one.tolist() for one in shares))) == list(range(samples))
        sizes = [len(one) for one in shares]
        assert max(sizes) - min(sizes) <= 1


def test_share_is_a_function_of_its_arguments() -> None:
    base = {"seed": 5, "agent": 1, "agents": 2, "epoch": 3, "incarnation": 0}
    first = share_of_epoch(50, **base).tolist()
    assert share_of_epoch(50, **base).tolist() == first
    for change in ({"seed": 6}, {"agent": 0}, {"epoch": 4}, {"incarnation": 1}):
        assert share_of_epoch(50, **{**base, **change}).tolist() != first
    assert sorted(share_of_epoch(50, **{**base, "incarnation": 1}).tolist()) == sorted(first), "same samples, other order"


def test_epochs_differ_and_seed_zero_is_no_exception() -> None:
    assert (
        share_of_epoch(50, seed=0, agent=0, agents=1, epoch=0, incarnation=0).tolist()
        != share_of_epoch(50, seed=0, agent=0, agents=1, epoch=1, incarnation=0).tolist()
    )


def test_batches_are_nearly_equal_and_leave_nothing_out() -> None:
    sizes = [len(indices) for indices in share(Squares(9), batch_size=4).indices()]
    assert sizes == [3, 3, 3], "4, 4, 1 would end in a batch that BatchNorm refuses"


@pytest.mark.parametrize("loader", [{}, {"num_workers": 1}], ids=["same process", "a worker"])
def test_data_loader_path_and_counting(loader: dict[str, int]) -> None:
    counted: list[int] = []
    batches = list(share(Squares(10), count=counted.append, **loader))
    assert sum(counted) == 10
    assert sorted(torch.cat([numbers for numbers, _ in batches]).tolist()) == list(range(10))
    assert all((numbers**2 == squares).all() for numbers, squares in batches)


def test_tensor_data_set_gives_what_the_loader_gives() -> None:
    numbers = torch.arange(10)
    fast = list(share(TensorDataset(numbers, numbers**2)))
    slow = list(share(Squares(10)))
    assert all(torch.equal(a, b) for one, other in zip(fast, slow, strict=True) for a, b in zip(one, other, strict=True))


def test_endless_share_ends_when_the_run_is_stopping() -> None:
    seen: list[int] = []
    for numbers, _ in share(Squares(6), 3, epochs=None, stopping=lambda: len(seen) >= 30):  # noqa: B023
        seen += numbers.tolist()
    assert len(seen) == 30
    assert all(sorted(seen[at : at + 6]) == list(range(6)) for at in range(0, 30, 6))


@pytest.mark.parametrize(
    ("dataset", "changes", "says"),
    [
        (Squares(3), {"agents": 4}, "fewer samples than agents: samples=3, agents=4"),
        (iter(range(3)), {}, "not a map-style data set: range_iterator"),
        (Squares(3), {"batch_size": 0}, "batch_size=0"),
    ],
)
def test_bad_input_is_refused(dataset, changes, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        share(dataset, **changes)
