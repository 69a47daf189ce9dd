"""The bundled digits: the same split for everybody."""

from __future__ import annotations

import pytest
import torch

from mpca import data
from mpca.errors import ConfigError


def test_the_table_says_how_many_samples_there_are() -> None:
    digits = data.DATA_SETS["digits"]
    assert {split: len(data.load("digits", split)) for split in digits.splits} == digits.samples()


def test_a_split_depends_on_the_seed_alone() -> None:
    assert torch.equal(data.load("digits", "test", 3).tensors[0], data.load("digits", "test", 3).tensors[0])
    assert not torch.equal(data.load("digits", "test", 3).tensors[1], data.load("digits", "test", 4).tensors[1])


def test_train_and_test_share_no_image_and_every_class_is_in_both() -> None:
    train, test = data.load("digits", "train"), data.load("digits", "test")
    # the collection holds a few images twice; none of them may be counted as a leak of the split
    seen = {image.numpy().tobytes() for image in train.tensors[0]}
    again = sum(image.numpy().tobytes() in seen for image in test.tensors[0])
    assert again <= 2
    assert set(test.tensors[1].tolist()) == set(train.tensors[1].tolist()) == set(range(10))
    assert train.tensors[0].mean().abs() < 1e-5
    assert train.tensors[0].dtype == torch.float32


def test_more_agents_than_samples_are_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"cluster.agents = 1438: fewer samples than agents: .* has 1437"):
        data.check("digits", 1438)


def test_an_unknown_data_set_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'digits'"):
        data.load("digit", "train")


def test_a_key_that_the_data_set_does_not_take_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown key data.bach_size: did you mean 'batch_size'"):
        data.check("digits", 1, {"bach_size": 3})


def test_a_split_that_there_is_not_names_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="unknown split: split='validation'; one of train, test"):
        data.load("digits", "validation")
