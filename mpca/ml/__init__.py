"""Training and prediction as stages of `pyspark.ml`: `MpcaEstimator.fit` gives an `MpcaModel`, which transforms DataFrames.

Both save and load, alone and inside a `Pipeline`. What runs on executors (`training`, `predict`) is imported without pyspark.
Names are loaded when they are first used, so that an agent does not import `pyspark.ml`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpca.ml.estimator import MpcaEstimator
    from mpca.ml.model import MpcaModel
    from mpca.ml.saving import trust_pickles

#: Name -> module that has it.
_HOMES = {
    "MpcaEstimator": "mpca.ml.estimator",
    "MpcaModel": "mpca.ml.model",
    "trust_pickles": "mpca.ml.saving",
}

__all__ = ["MpcaEstimator", "MpcaModel", "trust_pickles"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'mpca.ml' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)
