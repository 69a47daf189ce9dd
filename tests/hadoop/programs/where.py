"""Tells from a task which interpreter runs there and what it finds."""

from pyspark.sql import SparkSession


def look(_: int) -> list[str]:
    import sys

    import numpy

    import mpca

    return [sys.executable, numpy.__file__, mpca.__file__]


spark = SparkSession.builder.getOrCreate()
for path in spark.sparkContext.parallelize([0], 1).map(look).collect()[0]:
    print("there:", path)
spark.stop()
