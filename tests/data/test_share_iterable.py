"""Data sets that can only be gone through, partitioned by the engine; and files by their pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

import mpca
from mpca.data.epochs import Epochs
from mpca.data.plan import Readers
from mpca.data.share_iterable import IterableShare
from mpca.errors import ConfigError


class Numbers(IterableDataset):
    """Counts from the epoch's hundred on."""

    def __init__(self, samples: int) -> None:
        self.samples, self.epoch = samples, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(range(100 * self.epoch, 100 * self.epoch + self.samples))


@pytest.mark.parametrize("loader", [{}, {"num_workers": 2}], ids=["same process", "workers"])
def test_agents_and_their_workers_together_see_every_sample_once(loader: dict[str, int]) -> None:
    counted: list[int] = []
    shares = [IterableShare(Numbers(23), 4, epochs=Epochs(a, 2, 2), count=counted.append, **loader) for a in range(2)]
    seen = sorted(torch.cat([batch for share in shares for batch in share]).tolist())
    assert seen == [*range(23), *range(100, 123)]
    assert sum(counted) == 46


class Counted(Numbers):
    def __len__(self) -> int:
        return self.samples


@pytest.mark.parametrize(
    "loader",
    [{}, {"num_workers": 2}, {"drop_last": True}, {"num_workers": 2, "drop_last": True}],
    ids=["same process", "workers", "whole batches", "whole batches of workers"],
)
def test_its_length_is_how_many_batches_come_where_the_data_set_has_one(loader: dict[str, int]) -> None:
    one = IterableShare(Counted(23), 4, epochs=Epochs(1, 2, 2), **loader)
    assert len(one) == sum(1 for _ in one)
    with pytest.raises(TypeError, match="has no len"):
        len(IterableShare(Numbers(23), 4, epochs=Epochs(0, 1, 1)))


def test_an_endless_share_ends_when_the_run_is_stopping_and_one_without_samples_says_so() -> None:
    seen: list[int] = []
    for batch in IterableShare(Numbers(4), 2, epochs=Epochs(0, 1, None), stopping=lambda: len(seen) >= 10):  # noqa: B023
        seen += batch.tolist()
    assert len(seen) == 10
    with pytest.raises(ConfigError, match="no sample for this agent in epoch 0: it is number 4 of 5"):
        next(iter(IterableShare(Numbers(4), 2, epochs=Epochs(4, 5, None))))


@pytest.mark.parametrize(
    "collate",
    [
        lambda samples: SimpleNamespace(x=samples),
        lambda samples: {"count": len(samples), "x": samples},
        lambda samples: {"weight": torch.tensor(1.0), "x": samples},
    ],
    ids=["own class", "number", "scalar"],
)
def test_a_batch_whose_form_does_not_say_its_size_counts_as_a_full_one(collate: Callable[[list[int]], Any]) -> None:
    counted: list[int] = []
    share = IterableShare(Numbers(8), 4, epochs=Epochs(0, 1, 1), count=counted.append, collate_fn=collate)
    assert len(list(share)) == 2
    assert counted == [4, 4]


def test_a_lost_agent_s_samples_are_the_others_from_the_next_epoch_on() -> None:
    turns = Epochs(0, 2, 2)
    turns.update_readers(Readers.of(2).lose(1, 0, 0))
    assert torch.cat(list(IterableShare(Numbers(4), 2, epochs=turns))).tolist() == [0, 2, 100, 101, 102, 103]


def test_mpca_shard_takes_both_kinds() -> None:
    assert sorted(torch.cat(list(mpca.shard(Numbers(10), batch_size=4, epochs=1))).tolist()) == list(range(10))
    assert sorted(torch.cat(list(mpca.shard(list(range(10)), batch_size=4, epochs=1))).tolist()) == list(range(10))


def test_files_of_a_pattern(tmp_path: Path) -> None:
    for name in ("b", "a", "sub/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert mpca.files(f"{tmp_path}/?") == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert f"{tmp_path}/sub/c" in mpca.files(f"{tmp_path}/**")
    with pytest.raises(ConfigError, match="fewer files than agents: 0 files for 1 agents, pattern="):
        mpca.files(f"{tmp_path}/*.tar")
