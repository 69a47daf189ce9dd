"""All three generators are seeded by the same numbers, and by none but all of them."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from mpca.agent.seeds import seed_everything

DRAWS: list[Callable[[], float]] = [random.random, np.random.random, lambda: torch.rand(()).item()]


@pytest.mark.parametrize("draw", DRAWS, ids=["python", "numpy", "torch"])
def test_each_generator_follows_every_number(draw: Callable[[], float]) -> None:
    def drawn(*numbers: int) -> list[float]:
        seed_everything(*numbers)
        return [draw() for _ in range(3)]

    runs = [(7, 0, 0), (8, 0, 0), (7, 1, 0), (7, 0, 1), (7,), (70, 0)]
    first = [drawn(*run) for run in runs]
    assert [drawn(*run) for run in runs] == first, "the same numbers again"
    assert len({tuple(numbers) for numbers in first}) == len(runs)
