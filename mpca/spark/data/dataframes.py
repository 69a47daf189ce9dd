"""`mpca.ingest_dataframe`: a Spark DataFrame or SQL result, written once as shards that agents stream.

Two jobs run on the executors. The first makes a record of each row, keeps the records on the executors' disks, and surveys them
all; then the driver knows classes, sizes and errors. The second brings the records of each shard together and writes the shard.
`mpca.data.rows` and `mpca.data.ingest_rows` decide about rows; this file has only Spark's part.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from mpca.checks import nearest
from mpca.data.ingest import Options, begin, finish, look
from mpca.data.ingest_rows import Files, Plan, make_plan, notes_of, write_shard
from mpca.data.manifest import opened
from mpca.data.rows import FILES, NUMBERS, Form, Packed, Survey, pack_rows, survey
from mpca.errors import ConfigError, EnvironmentRefused, JvmError, MpcaError
from mpca.extras import require
from mpca.spark.jvm.login import PROXY_USER, by_ticket_alone
from mpca.storage import Location
from mpca.units import parse_size

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

__all__ = ["IngestedData", "column_type", "ingest_dataframe", "kind_of"]

_LOOK_S = 0.5  # between two reports of progress
_IMAGE = {"origin", "height", "width", "nChannels", "mode", "data"}  # the struct of Spark's image source
_FILE = {"path", "content"}  # of its binaryFile source
_WHOLE, _REAL = ("ByteType", "ShortType", "IntegerType", "LongType"), ("FloatType", "DoubleType", "DecimalType")
_REMEDY = "a vector (VectorAssembler makes one of columns), an array of numbers, an image, its bytes, or its path"
_PYTHON_ERROR = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Refused|Interrupt))(?:: (.*))?$", re.MULTILINE)


@dataclass(frozen=True)
class IngestedData:
    """A data set that was written. ``mpca.Distributor(conf=data.conf)`` makes it what ``mpca.dataset("train")`` reads."""

    path: str
    """As `data.path` of a configuration."""
    classes: list[str]
    """The names of the labels 0, 1, 2, ..."""
    records: dict[str, int]
    """How many records each split has."""
    bad: int
    """Images that could not be read; they are named in ``bad.jsonl``."""
    found: str
    """"new", "resumed", or "finished": the same rows were there already."""
    name: str
    """As `data.name`: "imagenet" for images, "vectors" for numbers."""

    @property
    def conf(self) -> dict[str, str]:
        """Keys of a configuration, to be merged with others."""
        return {"data.name": self.name, "data.path": self.path}


def ingest_dataframe(
    df: DataFrame,
    target: str,
    *,
    features: str = "features",
    label: str = "label",
    classes: int | None = None,
    withheld: int = 0,
    validation: str | float | None = None,
    shorter_edge: int = 0,
    seed: int = 0,
    shard_size: str = "120MiB",
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> IngestedData:
    """Write the rows of a DataFrame as shards into the folder `target`, by a job on its executors.

    When the same rows were written before with the same options and seed, in whatever order, nothing is written. An ingest
    that was broken off goes on. The DataFrame is computed once; its records lie on the executors' disks until the shards are
    written.

    Args:
        df: any DataFrame.
        target: a folder that all executors share: ``hdfs://...``, or a path of a shared disk. ``{digest}`` in it becomes a hash
            of rows and options, so that each set has a folder of its own, and the same one again.
        features: column of vectors (``pyspark.ml.linalg``), of arrays of numbers, which may be nested, of images as Spark's
            image source has them, of their bytes (``binaryFile``), also with their paths in a struct, or of their paths.
        label: column of whole numbers from 0 on, or of the classes' names.
        classes: how many classes there are, if labels are numbers; as many as there are labels if not given.
        withheld: how many rows of each class go into the validation split, on which a run is evaluated.
        validation: instead of `withheld`: a column that is true for the rows of that split, or about which share of all rows.
        shorter_edge: encode images again with a shorter edge of so many pixels; 0: as they are.
        seed: of the shuffle, and of the choice of withheld rows.
        shard_size: about how many bytes a shard has.
        on_progress: called with the number of rows that are written, and the number of all rows.

    Raises:
        ConfigError: columns or rows that cannot be trained on: which, how many, where the first is, and what to do;
            or the target holds something else.
        EnvironmentRefused: the executors' Python has no mpca, no package here decodes images, or the driver would write as
            another user than the executors.
        MpcaError: the job failed; begins with its root cause.
    """
    from pyspark import StorageLevel

    try:
        options = Options(seed, shorter_edge, withheld, parse_size(shard_size))
    except ValueError as error:  # a size without its unit
        raise ConfigError(str(error)) from None
    form = _form(df, features, label, validation)
    if withheld and validation is not None:
        raise ConfigError(f"withheld={withheld} and validation={validation!r} both name the rows to evaluate on; leave one out")
    if form.kind not in NUMBERS:
        require("simplejpeg", "PIL")
    rows = df.select(features, label, *([validation] if isinstance(validation, str) else [])).rdd
    if (user := by_ticket_alone(rows.context._jvm)) and not Location.parse(str(target)).is_local:
        raise EnvironmentRefused(
            f"{target}: this driver would write it by the service's own ticket, and not as {user} (--proxy-user): submit with "
            f"--deploy-mode cluster, or with {PROXY_USER}={user} in the environment in place of --proxy-user"
        )
    packed = rows.mapPartitionsWithIndex(partial(_pack, form, seed)).persist(StorageLevel.DISK_ONLY)
    try:
        return _ingest(packed, form, str(target), options, classes, on_progress)
    finally:
        packed.unpersist()


def _ingest(
    packed: RDD[Any],
    form: Form,
    target: str,
    options: Options,
    classes: int | None,
    on_progress: Callable[[int, int], None],
) -> IngestedData:
    context = packed.context
    with _job(context, "mpca: looking at the rows"):
        told = _survey_all(packed, form, options.withheld)
    plan = make_plan(form, told, target, options, classes)
    target = plan.target
    with opened(target) as store:
        found, manifest = look(store, target, plan.digest)
        if manifest is None:
            begin(store, plan.digest)
            with _job(context, "mpca: writing shards"):
                _write_all(context, packed, plan, on_progress)
            manifest = finish(store, plan.classes, options, plan.digest, notes_of(plan, store), plan.vectors)
    records = {split: of.records for split, of in manifest.splits.items()}
    name = "imagenet" if manifest.vectors is None else "vectors"
    return IngestedData(target, manifest.classes, records, manifest.bad, found, name)


# ---- columns -------------------------------------------------------------------------------------------------------------


def column_type(df: DataFrame, column: str) -> DataType:
    """The type of a column; ConfigError if there is none of that name."""
    if column not in df.columns and "." not in column:  # a dot reaches into a struct
        raise ConfigError(f"the DataFrame has no column {column!r}: {nearest(column, df.columns)}")
    return df.select(column).schema.fields[0].dataType


def _form(df: DataFrame, features: str, label: str, validation: str | float | None) -> Form:
    of_features, of_label = (column_type(df, column) for column in (features, label))
    kind, dtype = kind_of(features, of_features)
    _check_validation(df, validation)
    name = type(of_label).__name__
    if name not in (*_WHOLE, *_REAL, "StringType"):
        raise ConfigError(
            f"column {label!r} is of type {of_label.simpleString()}: labels are whole numbers, or names as strings; cast it"
        )
    return Form(features, label, kind, dtype, validation)


def _check_validation(df: DataFrame, validation: str | float | None) -> None:
    if isinstance(validation, str):
        of = column_type(df, validation)
        if type(of).__name__ not in ("BooleanType", *_WHOLE):
            remedy = "true, or 1, puts a row aside to evaluate on; cast it to boolean"
            raise ConfigError(f"column {validation!r} is of type {of.simpleString()}: {remedy}")
    elif validation is not None and not (type(validation) is float and 0 < validation < 1):
        raise ConfigError(f"validation={validation!r}: must be a column, or a share of the rows above 0 and below 1")


def kind_of(column: str, of: DataType) -> tuple[str, str]:
    """The kind of a column of features, as in `Form`, and numpy's type of its numbers."""
    from pyspark.sql.types import ArrayType, BinaryType, StringType, StructType

    if type(of).__name__ == "VectorUDT":  # of pyspark.ml, or of the older pyspark.mllib
        return "vector", "float32"
    if isinstance(of, ArrayType):
        inner: DataType = of
        while isinstance(inner, ArrayType):
            inner = inner.elementType
        if type(inner).__name__ in (*_WHOLE, *_REAL):
            return "array", "int64" if type(inner).__name__ in _WHOLE else "float32"
    if isinstance(of, BinaryType):
        return "binary", ""
    if isinstance(of, StringType):
        return "path", ""
    if isinstance(of, StructType) and set(of.names) >= _IMAGE:
        return "image", ""
    if isinstance(of, StructType) and set(of.names) >= _FILE:
        return "file", ""
    raise ConfigError(f"column {column!r} is of type {of.simpleString()}, on which mpca cannot train; give {_REMEDY}")


# ---- on the executors ----------------------------------------------------------------------------------------------------

_Rows = Iterator[Any]  # what `pack_rows` gives


def _pack(form: Form, seed: int, partition: int, rows: Iterable[Any]) -> _Rows:
    return pack_rows(form, partition, rows, seed)


def _survey(form: Form, withheld: int, packed: _Rows) -> Iterator[Survey]:
    with Files() as files:
        yield survey(form, packed, withheld, files.size if form.kind in FILES else None)


def _keyed(plan: Plan, packed: _Rows) -> Iterator[tuple[tuple[int, bytes], Packed]]:
    for one in packed:
        yield (plan.shard_of(one), one.digest), one


def _shard(key: tuple[int, bytes]) -> int:
    return key[0]


def _write(plan: Plan, done: Any, index: int, keyed: Iterable[tuple[Any, Packed]]) -> Iterator[int]:
    count = write_shard(plan, index, (one for _, one in keyed))
    done.add(count)
    yield count


# ---- on the driver -------------------------------------------------------------------------------------------------------


def _survey_all(packed: RDD[Any], form: Form, withheld: int) -> Survey:
    if not packed.getNumPartitions():
        return Survey(withheld)
    return packed.mapPartitions(partial(_survey, form, withheld)).treeReduce(Survey.plus)


def _write_all(context: SparkContext, packed: RDD[Any], plan: Plan, on_progress: Callable[[int, int], None]) -> None:
    shards = sum(plan.shards.values())
    done = context.accumulator(0)
    keyed = packed.mapPartitions(partial(_keyed, plan))
    ordered = keyed.repartitionAndSortWithinPartitions(shards, _shard)  # type: ignore[call-overload]  # pyspark asks for more
    with _telling(done, plan.records, on_progress):
        written = sum(ordered.mapPartitionsWithIndex(partial(_write, plan, done)).collect())
    if written != plan.records:
        raise MpcaError(
            f"the DataFrame had {plan.records} rows when it was first computed, and {written} the second time: "
            "write it to a table, and ingest that"
        )


@contextmanager
def _telling(done: Any, total: int, on_progress: Callable[[int, int], None]) -> Iterator[None]:
    """Report progress while a job goes on. Spark adds up the counts of finished tasks."""
    over = threading.Event()

    def tell() -> None:
        told = -1
        while not over.wait(_LOOK_S):
            if done.value != told:
                told = done.value
                on_progress(min(told, total), total)  # a task that ran twice counts twice

    teller = threading.Thread(target=tell, name="mpca-progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
    on_progress(total, total)


@contextmanager
def _job(context: SparkContext, description: str) -> Iterator[None]:
    """Give a job its name in Spark's pages, and turn its failure into an error of ours."""
    context.setJobDescription(description)
    try:
        yield
    except Py4JJavaError as error:
        text = str(error.java_exception.getMessage() or error)
        raised = _PYTHON_ERROR.findall(text)
        if "No module named 'mpca'" in text:
            raise EnvironmentRefused(
                "the executors' Python has no mpca: submit with an environment that has it (--archives, mpca pack), or set "
                "PYSPARK_PYTHON to an interpreter that has it on every node"
            ) from None
        cause = ": ".join(part for part in raised[-1] if part) if raised else text.splitlines()[0]
        raise JvmError(f"{description} failed: {cause}") from error
    finally:
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]  # None removes it
