"""A backup of another model is refused, with the first tensor that differs."""

from __future__ import annotations

import numpy as np
import pytest

from mpca.api.resume import Resumed
from mpca.driver.joint import JointModel
from mpca.errors import BackupError
from mpca.methods import MPCA
from mpca.storage import BackupState, ModelLayout
from tests.driver.support import hello


def backup(*rows: list) -> Resumed:
    layout = ModelLayout.of(rows, parameters=6)
    return Resumed(
        "hdfs://nn/b", BackupState(layout, np.zeros(6, np.float32), np.zeros(6, np.float32), [0, 2, 4, 6], [1, 1, 1], "r", 1, 3)
    )


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([["weight", [2, 3], "parameter", 0]], r"it has weight \[2, 3\] where this model has weight \[6\]"),
        ([["bias", [6], "parameter", 0]], r"it has bias \[6\] where this model has weight \[6\]"),
        ([["weight", [6], "parameter", 0], ["seen", [0], "buffer", 6]], "tensors=2, here=1"),
    ],
)
def test_another_model_is_refused_with_the_first_difference(rows: list, words: str) -> None:
    with pytest.raises(BackupError, match=f"^the backup is of another model: path=hdfs://nn/b, {words}"):
        backup(*rows).restore(JointModel(MPCA(), hello(0).hello))


def test_the_same_model_takes_it_up() -> None:
    joint = JointModel(MPCA(), hello(0).hello)
    backup(["weight", [6], "parameter", 0]).restore(joint)
    assert joint.versions() == [1, 1, 1]
