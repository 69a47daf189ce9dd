"""The columns that a model adds, by the names of those that are there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mpca.errors import ConfigError
from mpca.ml import MpcaModel


def added(columns: list[str], **params: Any) -> dict[str, str]:
    table: Any = SimpleNamespace(columns=columns)
    return MpcaModel().setParams(**params)._wanted(table)


def test_each_column_has_its_output() -> None:
    assert added(["features"], probabilityCol="chance") == {"chance": "probability", "prediction": "index"}


@pytest.mark.parametrize(
    ("columns", "params", "says"),
    [
        (["prediction"], {}, "^the DataFrame has a column 'prediction' already: set predictionCol to another name"),
        (["Prediction"], {}, "^the DataFrame has a column 'Prediction' already: set predictionCol"),
        ([], {"probabilityCol": "Prediction"}, "^the DataFrame has a column 'Prediction' already: set predictionCol"),
        ([], {"predictionCol": ""}, "^transform has no column to add: set predictionCol"),
    ],
    ids=["same", "capitals", "twice", "none"],
)
def test_a_column_that_is_there_is_not_replaced(columns: list[str], params: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        added(columns, **params)
