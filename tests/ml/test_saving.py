"""What cannot be saved is refused before anything is removed; real folders are in `tests/spark/test_ml.py`."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.ml.util import MLWriter

from mpca.errors import ConfigError
from mpca.ml import MpcaEstimator
from tests.ml import nets


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"model": lambda: nets.two()}, "^model = <function .* has no import path, by which load would find it"),
        ({"modelArgs": {"activation": nets.two}}, "^modelArgs = .* cannot be saved: Object of type function is not JSON"),
        ({"modelArgs": {"sizes": [{1: 8}]}}, "^modelArgs = .* cannot be saved: the key 1 would be loaded as a text; give"),
    ],
    ids=["code", "value", "key"],
)
def test_overwrite_removes_nothing_for_what_cannot_be_saved(
    monkeypatch: pytest.MonkeyPatch, params: dict[str, Any], says: str
) -> None:
    monkeypatch.setattr(MLWriter, "_handleOverwrite", lambda *_: pytest.fail("what was saved before is gone"))
    with pytest.raises(ConfigError, match=says):
        MpcaEstimator(**params).write().overwrite().save("/saved/before")
