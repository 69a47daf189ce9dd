"""`mpca.images_in_tar`: ImageNet's tar of tars as a DataFrame, so that executors ingest it side by side.

It is lazy, as DataFrames are: only the offsets of the classes are read before `mpca.ingest_dataframe` asks for the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from mpca.data.ingest_tars import ClassTar, class_tars, images_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["images_in_tar"]


def images_in_tar(spark: SparkSession, source: str) -> DataFrame:
    """The images of a tar that holds a tar a class: columns `image` (path and content) and `label` (the class's name).

    The tar of each class is read by a task of its own, wherever `source` lies: ``hdfs://...``, which executors read over
    WebHDFS, or a path that all of them share.

    Raises:
        ConfigError: it is no tar of tars, or cut off.
        OSError: it cannot be read.

    Example:
        ``mpca.ingest_dataframe(mpca.images_in_tar(spark, "hdfs:///train.tar"), "hdfs:///imagenet", features="image")``
    """
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    image = StructType([StructField("path", StringType(), False), StructField("content", BinaryType(), False)])
    schema = StructType([StructField("image", image, False), StructField("label", StringType(), False)])
    tars = class_tars(source)
    rows = spark.sparkContext.parallelize(tars, len(tars)).flatMap(partial(_rows, source))
    return spark.createDataFrame(rows, schema, verifySchema=False)


def _rows(source: str, tar: ClassTar) -> Iterator[tuple[Any, ...]]:
    for name, data in images_of(source, tar):
        yield (f"{source}:{name}", bytearray(data)), tar.name
