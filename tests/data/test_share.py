from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.data import TensorDataset

from mpca.data.epochs import EpochPart, Epochs
from mpca.data.plan import Readers
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


def share(dataset, batch_size: int = 4, *, agent: int = 0, agents: int = 1, epochs: int | None = 1, **more) -> Share:
    return Share(dataset, batch_size, seed=7, incarnation=0, epochs=Epochs(agent, agents, epochs), **more)


@pytest.mark.parametrize(("samples", "agents"), [(10, 1), (10, 3), (7, 7), (101, 8)])
def test_agents_together_see_every_sample_of_an_epoch_once(samples: int, agents: int) -> None:
    for epoch in range(3):
        # Not all of the same incarnation: a replaced agent must not take another's samples.
        shares = [
            share_of_epoch(samples, EpochPart(epoch, a, agents), seed=5, agent=a, incarnation=a % 2) for a in range(agents)
        ]
        assert sorted(itertools.chain(*(one.tolist() for one in shares))) == list(range(samples))
        sizes = [len(one) for one in shares]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("samples", "batch_size", "agents"), [(10, 4, 3), (9, 4, 1), (7, 7, 7), (101, 8, 4)])
def test_its_length_is_how_many_batches_come(samples: int, batch_size: int, agents: int) -> None:
    for agent in range(agents):
        one = share(Squares(samples), batch_size, agent=agent, agents=agents, epochs=2)
        assert len(one) == sum(1 for _ in one)
        endless = share(Squares(samples), batch_size, agent=agent, agents=agents, epochs=None)
        assert 2 * len(endless) == len(one), "of one epoch, as schedules count"


def test_its_length_follows_the_readers() -> None:
    turns = Epochs(0, 2, 1)
    one = Share(Squares(60), 10, seed=7, incarnation=0, epochs=turns)
    assert len(one) == sum(1 for _ in one) == 3
    turns.update_readers(Readers.of(2).lose(1, 0, 0, last=0))
    assert len(one) == 6


def test_share_is_a_function_of_its_arguments() -> None:
    base = {"part": EpochPart(3, 1, 2), "seed": 5, "agent": 1, "incarnation": 0}
    first = share_of_epoch(50, **base).tolist()
    assert share_of_epoch(50, **base).tolist() == first
    for change in ({"seed": 6}, {"part": EpochPart(3, 0, 2)}, {"part": EpochPart(4, 1, 2)}, {"incarnation": 1}):
        assert share_of_epoch(50, **{**base, **change}).tolist() != first
    assert sorted(share_of_epoch(50, **{**base, "incarnation": 1}).tolist()) == sorted(first), "same samples, other order"


def test_epochs_differ_and_seed_zero_is_no_exception() -> None:
    first, second = (share_of_epoch(50, EpochPart(e, 0, 1), seed=0, agent=0, incarnation=0).tolist() for e in range(2))
    assert first != second


def test_batches_are_nearly_equal_and_leave_nothing_out() -> None:
    sizes = [len(numbers) for numbers, _ in share(Squares(9), batch_size=4)]
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


def test_who_goes_through_it_again_gets_the_next_epoch() -> None:
    again = share(Squares(50))
    first, second = ([int(n) for numbers, _ in again for n in numbers] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert [int(n) for numbers, _ in share(Squares(50), epochs=2) for n in numbers] == first + second


@pytest.mark.parametrize("loader", [{}, {"num_workers": 2}], ids=["same process", "workers"])
def test_the_epochs_after_a_loss_are_the_others_alone_until_one_joins(loader: dict[str, int]) -> None:
    """Agent 2 is lost in epoch 1, and joins again with epoch 4."""
    lost = Readers.of(3).lose(2, 1, 0, last=1)
    told = {0: Readers.of(3), 2: lost, 4: lost.join(2, 4)}
    seen: dict[int, list[list[int]]] = {epoch: [] for epoch in range(6)}
    for agent in range(3):
        turns = Epochs(agent, 3, 1, told[4] if agent == 2 else None)
        mine = Share(Squares(60), 7, seed=7, incarnation=0, epochs=turns, **loader)
        for epoch in (4, 5) if agent == 2 else range(6):
            turns.update_readers(told[max(at for at in told if at <= epoch)])
            seen[epoch].append([int(n) for numbers, _ in mine for n in numbers])
            assert turns.position == (epoch, 0)
            assert turns.ahead == epoch
    for epoch, parts in seen.items():
        whole = sorted(itertools.chain(*parts))
        if epoch in (0, 1):  # what the lost agent has read of the first, and of the second what it has not
            assert len(whole) == 40
        else:
            assert whole == list(range(60))
        assert len(parts) == (3 if epoch >= 4 else 2)


def test_who_was_given_up_reads_its_part_until_it_is_ended() -> None:
    given_up = Epochs(2, 3, 1, Readers.of(3).lose(2, 0, 0))
    assert list(given_up.parts()) == [EpochPart(0, 2, 3)]
    assert list(given_up.parts()) == [EpochPart(1, 2, 3)]


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
