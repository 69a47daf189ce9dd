"""What `mpca.log` takes, what it refuses in a sentence, and what comes out."""

from __future__ import annotations

import logging
import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import mpca
from mpca.agent.metrics import MOST_NAMES, Metrics
from mpca.errors import ConfigError


def test_means_are_of_what_came_since_the_last() -> None:
    metrics = Metrics()
    for loss in (3.0, 2.0, 1.0):
        metrics.add({"loss": loss, "lr": 0.5})
    metrics.add({"accuracy": True})
    assert list(metrics.take().items()) == [("loss", 2.0), ("lr", 0.5), ("accuracy", 1.0)]
    assert metrics.take() == {}
    metrics.add({"loss": 7})
    assert (metrics.take(), metrics.newest("loss"), metrics.newest("unknown")) == ({"loss": 7.0}, 7.0, 0.0)


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor(0.5, requires_grad=True),
        torch.tensor([[0.5]], dtype=torch.bfloat16),
        torch.tensor(0.5, dtype=torch.float64),
        np.float32(0.5),
        np.array(0.5),
    ],
    ids=str,
)
def test_any_one_number_is_taken(value: Any) -> None:
    metrics = Metrics()
    metrics.add({"loss": value})
    assert metrics.take() == {"loss": 0.5}


def test_a_tensor_that_changes_in_place_afterwards_was_taken_as_it_was() -> None:
    metrics, running = Metrics(), torch.zeros(1, dtype=torch.float64)
    for _ in range(2):
        running += 1
        metrics.add({"loss": running})
    assert metrics.take() == {"loss": 1.5}


def test_what_is_not_finite_is_passed_on() -> None:
    metrics = Metrics()
    metrics.add({"loss": math.nan, "scale": math.inf})
    taken = metrics.take()
    assert math.isnan(taken["loss"])
    assert taken["scale"] == math.inf


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("warm-up", "note is a str 'warm-up'; print text"),
        ("0.5", "note is a str '0.5'"),
        (None, "note is a NoneType None"),
        ([0.5], "note is a list [0.5]"),
        (1j, "note is a complex 1j"),
        (torch.zeros(2, 3), "note is a Tensor of shape [2, 3]"),
        (torch.zeros(1, dtype=torch.complex64), "note is a Tensor of shape [1]"),
        (np.zeros(4), "note is a ndarray of shape [4]"),
    ],
    ids=str,
)
def test_what_is_not_a_number_is_refused_in_a_sentence_and_alone_too(value: Any, says: str) -> None:
    sentence = r"^mpca\.log takes numbers, or tensors of one element: " + re.escape(says)
    with pytest.raises(ConfigError, match=sentence):
        mpca.log(note=value)


@pytest.mark.parametrize("value", [10**400, 10**5000, Fraction(-(10**400), 3)], ids=lambda one: type(one).__name__)
def test_a_number_beyond_all_floats_is_refused_in_a_sentence(value: Any) -> None:
    sentence = rf"^mpca\.log takes numbers that fit into a float: size is a larger {type(value).__name__}$"
    with pytest.raises(ConfigError, match=sentence):
        mpca.log(size=value)


def test_a_flood_of_names_is_cut_off_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    with caplog.at_level(logging.WARNING):
        for n in range(3 * MOST_NAMES):
            metrics.add({f"loss{n}": n, "loss0": 1.0})
    assert len(metrics.take()) == MOST_NAMES
    assert caplog.messages == [f"mpca.log keeps {MOST_NAMES} names; left out, as every further one: loss{MOST_NAMES}"]
    with pytest.raises(ConfigError, match=r"^mpca\.log takes numbers by name, which has at most 100 characters: l"):
        metrics.add({"l" * 101: 1.0})
