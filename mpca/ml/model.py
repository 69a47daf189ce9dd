"""`MpcaModel`: a trained module that adds predictions to DataFrames, as a stage of `pyspark.ml`.

`transform` is a pandas UDF: Arrow brings batches of rows to the executors' Python, where `predict` has the module from one
broadcast. The driver checks the columns before there is a job.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING, Any

import safetensors.torch
from pyspark.ml import Model
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import ArrayType, DoubleType, StringType, StructField, StructType

from mpca import pickling
from mpca.data.rows import NUMBERS
from mpca.errors import ConfigError, EnvironmentRefused
from mpca.extras import extras, require
from mpca.ml.code import find, make_module
from mpca.ml.params import Serves
from mpca.ml.predict import INDEX, LABEL, PROBABILITY, RAW, Input, Package, Serving, predict
from mpca.ml.saving import Reader, Writer
from mpca.spark.data.dataframes import column_type, kind_of

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext
    from pyspark.sql import Column, DataFrame
    from torch import nn

__all__ = ["MpcaModel", "check_packages"]

STATE_FILE = "model.safetensors"


def check_packages() -> None:
    """Refuse to begin without what pandas UDFs need.

    Raises:
        EnvironmentRefused: a package is missing, or is of a version that this pyspark does not know.
    """
    require("pandas", "pyarrow", *(["setuptools"] if sys.version_info >= (3, 12) else []))
    found, spark = metadata.version("pandas"), metadata.version("pyspark")
    if int(found.partition(".")[0]) > 2:
        raise EnvironmentRefused(f"pandas {found} is newer than pyspark {spark} knows: run pip install 'mpca[ml]'")


class MpcaModel(Serves, Model, MLWritable, MLReadable["MpcaModel"]):
    """What `MpcaEstimator.fit` returns, and `MpcaModel.load` reads back.

    `transform` adds `predictionCol`: the label as a text if `labelCol` held texts, else its number. `rawPredictionCol` (the
    module's outputs), `probabilityCol` (their softmax), `predictionIndexCol` and `labelIndexCol` are added if they have names.
    An image that cannot be read has null there.
    """

    def __init__(self) -> None:
        super().__init__()
        #: The labels that `fit` saw, by their numbers.
        self.classes: list[str] = []
        #: As of `mpca.Result`; empty in a model that was loaded.
        self.history: list[dict[str, Any]] = []
        #: The run's folder.
        self.run_dir = ""
        self._input = Input()
        self._textual = False  # labels were texts
        self._state = b""
        self._module: nn.Module | None = None
        self._sent: dict[str, Broadcast[Package]] = {}

    @property
    def module(self) -> nn.Module:
        """The trained `torch.nn.Module`, on the CPU, for evaluation."""
        if self._module is None:
            self._module = _filled(self._maker(), self.getModelArgs(), self._state)
        return self._module

    def _maker(self) -> Any:
        found = self.getModel()
        return find("model", found) if isinstance(found, str) else found

    # ---- saving --------------------------------------------------------------------------------------------------------

    def write(self) -> Writer:
        """As of all stages: ``model.write().overwrite().save(path)``."""
        return Writer(self)

    @classmethod
    def read(cls) -> Reader:
        """As of all stages."""
        return Reader(cls)

    def files(self) -> dict[str, bytes]:
        """What `save` writes beside the metadata."""
        return {STATE_FILE: self._state}

    def facts(self) -> dict[str, Any]:
        """What `save` writes into the metadata."""
        return {"input": asdict(self._input), "classes": self.classes, "textual": self._textual, "run_dir": self.run_dir}

    def restore(self, files: Mapping[str, bytes], facts: Mapping[str, Any]) -> None:
        """Take what `files` and `facts` gave, and check that the module's code still makes that module."""
        given = facts["input"]
        self._input = Input(**{**given, "shape": tuple(given["shape"]), "means": tuple(given["means"])})
        self.classes, self._textual, self.run_dir = list(facts["classes"]), facts["textual"], facts["run_dir"]
        self._state = files[STATE_FILE]
        self._module = _filled(self._maker(), self.getModelArgs(), self._state)

    # ---- transform -----------------------------------------------------------------------------------------------------

    def _transform(self, dataset: DataFrame) -> DataFrame:
        check_packages()
        column, of = self.getFeaturesCol(), column_type(dataset, self.getFeaturesCol())
        kind, dtype = kind_of(column, of)
        numbers = bool(self._input.dtype)
        if (kind in NUMBERS) != numbers or (numbers and self._input.dtype == "int64" != dtype):
            raise ConfigError(
                f"column {column!r} is of type {of.simpleString()}, and the model was fitted on {self._input}: give such values"
            )
        if not numbers:
            require("simplejpeg", "PIL")
        wanted = self._wanted(dataset)
        key, sent = self._broadcast(dataset.sparkSession.sparkContext)
        serving = Serving(
            key,
            self._input,
            column,
            "binary" if kind == "file" else kind,
            tuple(self.classes),
            tuple(dict.fromkeys(wanted.values())),
            self.getTransformBatchSize(),
            self.getUseGpu(),
        )
        values = _values(column, kind)
        found = f"{self.uid}_found"
        result = dataset.withColumn(found, _udf(sent, serving)(values))
        for name, output in wanted.items():
            result = result.withColumn(name, _column(F.col(f"{found}.{output}"), output))
        result = result.drop(found)
        if self.getLabelIndexCol() and self.getLabelCol() in dataset.columns:
            result = result.withColumn(self.getLabelIndexCol(), self._label_index(dataset))
        return result

    def _wanted(self, df: DataFrame) -> dict[str, str]:
        """Column -> output."""
        wanted = {
            "rawPredictionCol": RAW,
            "probabilityCol": PROBABILITY,
            "predictionCol": LABEL if self._textual else INDEX,
            "predictionIndexCol": INDEX,
        }
        found: dict[str, str] = {}
        taken = {one.lower(): one for one in df.columns}  # Spark takes capitals for the same: it would replace the column
        for param in [*wanted, "labelIndexCol"]:
            name = self.getOrDefault(param)
            if name and name.lower() in taken:
                raise ConfigError(
                    f"the DataFrame has a column {taken[name.lower()]!r} already: set {param} to another name, "
                    "or leave that column out"
                )
            if name:
                taken[name.lower()] = name
            if name and param in wanted:
                found[name] = wanted[param]
        if not found:
            raise ConfigError("transform has no column to add: set predictionCol, rawPredictionCol or probabilityCol")
        return found

    def _label_index(self, df: DataFrame) -> Column:
        """The class number of the label, or an error in the row's job."""
        label = F.col(self.getLabelCol())
        if not self._textual:
            label = F.when(label == label.cast("bigint"), label.cast("bigint"))
        text = label.cast("string")
        known = F.create_map(*[F.lit(one) for number, name in enumerate(self.classes) for one in (name, float(number))])
        shown = ", ".join(self.classes[:10]) + (", ..." if len(self.classes) > 10 else "")
        fact = F.concat(
            F.lit(f"column {self.getLabelCol()!r} has the label "),
            F.coalesce(F.col(self.getLabelCol()).cast("string"), F.lit("null")),
            F.lit(
                f", which fit did not see (it saw {shown}): leave such rows out, fit on rows with it, or set labelIndexCol=''"
            ),
        )
        return F.coalesce(known[text], F.raise_error(fact).cast("double"))

    def _broadcast(self, context: SparkContext) -> tuple[str, Broadcast[Package]]:
        code = pickling.dumps((self._maker(), self.getModelArgs()))
        key = hashlib.sha256(code + self._state).hexdigest()
        name = f"{context.applicationId} {key}"
        if name not in self._sent:
            self._sent.clear()  # of a session that is over, or of other arguments
            self._sent[name] = context.broadcast(Package(code, self._state))
        return key, self._sent[name]


MpcaModel.__module__ = "mpca.ml"  # saved stages name their class: this must outlive a move


def _filled(maker: Any, arguments: Mapping[str, Any], state: bytes) -> nn.Module:
    """The module that the code makes, with a trained state."""
    module, tensors = make_module(maker, arguments), safetensors.torch.load(state)
    made = module.state_dict()
    wrong = [f"has {name!r} more" for name in made.keys() - tensors.keys()]
    wrong += [f"lacks {name!r}" for name in tensors.keys() - made.keys()]
    wrong += [
        f"has {name!r} of shape {tuple(made[name].shape)} for {tuple(one.shape)}"
        for name, one in tensors.items()
        if name in made and made[name].shape != one.shape
    ]
    if wrong:
        raise ConfigError(
            f"the model's code makes another module than was trained: it {sorted(wrong)[0]}, {len(wrong)} such; "
            "install the code that was fitted, or fit again"
        )
    module.load_state_dict(tensors)
    return module.eval()


def _values(column: str, kind: str) -> Column:
    """The column as Arrow can carry it."""
    if kind == "vector":
        return F.when(F.col(column).isNotNull(), vector_to_array(F.col(column), "float32"))
    return F.col(f"{column}.content") if kind == "file" else F.col(column)


def _column(found: Column, output: str) -> Column:
    return F.when(found.isNotNull(), array_to_vector(found)) if output in (RAW, PROBABILITY) else found


def _udf(broadcast: Broadcast[Package], serving: Serving) -> Any:
    with extras():
        import pandas as pd

    def predictions(batches: Any) -> Any:
        yield from predict(lambda: broadcast.value, serving, batches)

    one: Any = pd.DataFrame if serving.kind == "image" else pd.Series  # structs come as frames
    predictions.__annotations__ = {"batches": Iterator[one], "return": Iterator[pd.DataFrame]}
    types = {LABEL: StringType(), INDEX: DoubleType()}
    returns = StructType([StructField(one, types.get(one, ArrayType(DoubleType()))) for one in serving.outputs])
    return pandas_udf(predictions, returns)  # type: ignore[call-overload]  # annotated above
