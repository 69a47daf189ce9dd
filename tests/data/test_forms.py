"""Batches of both forms: whose memory they are, when it is used again, and what becomes of images on a device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from mpca.data.forms import Batch, form_of
from mpca.data.stream_options import StreamOptions
from mpca.data.stream_reader import SplitData
from mpca.storage import LocalStore
from tests.data.pictures import ingested
from tests.gpu.standin import StandIn


def filled(batch: Batch, value: int) -> Tensor:
    while not batch.full:
        batch.add(np.full(3, value, np.uint8), value)
    return batch.take()[0]


@pytest.fixture
def batch() -> Batch:
    return Batch(4, (3,), np.float32)


def test_memory_is_used_again_when_nothing_refers_to_a_batch(batch: Batch) -> None:
    first = filled(batch, 1)
    place = first.data_ptr()
    del first
    again = filled(batch, 2)
    assert again.data_ptr() == place
    assert again.tolist() == [[2.0] * 3] * 4


@pytest.mark.parametrize(
    "kept",
    [lambda one: one, lambda one: one[1], lambda one: one.numpy(), lambda one: one.detach().T, lambda one: one.numpy()[2:]],
    ids=["batch", "row", "array", "transposed", "part of an array"],
)
def test_a_batch_of_which_a_part_is_kept_is_never_written_again(batch: Batch, kept: object) -> None:
    part = kept(filled(batch, 1))  # type: ignore[operator]
    others = [filled(batch, value) for value in range(2, 8)]
    assert np.unique(part).tolist() == [1.0]
    assert [np.unique(one).tolist() for one in others] == [[float(value)] for value in range(2, 8)]


def test_a_last_batch_that_is_smaller_gives_its_whole_memory_back(batch: Batch) -> None:
    batch.add(np.full(3, 9, np.uint8), 9)
    last, labels = batch.take()
    place = last.data_ptr()
    assert (tuple(last.shape), labels.tolist()) == ((1, 3), [9])
    del last
    assert tuple(filled(batch, 1).shape) == (4, 3)
    assert filled(batch, 1).data_ptr() == place


def test_memory_of_few_batches_is_kept(batch: Batch) -> None:
    held = [filled(batch, value) for value in range(10)]
    del held
    assert len(batch._memory._free) == 2


def test_images_are_bytes_until_they_are_on_the_device_and_then_the_same_numbers_on_any(tmp_path: Path) -> None:
    data = SplitData.open(LocalStore(ingested(tmp_path)), "train")
    form = form_of(data, StreamOptions(crop=16), seed=0)
    batch = form.batch(4)
    views = np.arange(3 * 3 * 256, dtype=np.uint8).reshape(3, 3, 16, 16)  # every byte in each channel
    means = np.array(data.manifest.channel_means, np.float32).reshape(3, 1, 1)
    expected = (views.astype(np.float32) - means) / np.float32(255)

    def taken() -> tuple[Tensor, Tensor]:
        for label, view in enumerate(views):
            batch.add(view, label)
        return batch.take()

    assert taken()[0].dtype == torch.uint8
    images, labels = form.finish(taken(), torch.device("cpu"))
    assert (images.dtype, labels.tolist()) == (torch.float32, [0, 1, 2])
    np.testing.assert_array_equal(images.numpy(), expected)
    with StandIn():
        there, labels = form.finish(taken(), torch.device("cuda", 0))
        assert {one.device for one in (there, labels)} == {torch.device("cuda", 0)}
        np.testing.assert_array_equal(there.cpu().numpy(), expected)


def test_the_memory_of_floats_is_used_again_too(tmp_path: Path) -> None:
    form = form_of(SplitData.open(LocalStore(ingested(tmp_path)), "train"), StreamOptions(crop=16), seed=0)
    batch = form.batch(1)

    def finished(value: int) -> Tensor:
        batch.add(np.full((3, 16, 16), value, np.uint8), 0)
        return form.finish(batch.take(), torch.device("cpu"))[0]

    kept = finished(1)
    before, place = kept.clone(), finished(2).data_ptr()
    assert finished(3).data_ptr() == place != kept.data_ptr()
    assert torch.equal(kept, before)
