"""Whole files between this machine and any file system of Hadoop's, through the driver's JVM; py4j carries names alone.

Needs no jar of mpca in the session, so a saved model can be loaded anywhere. Not for runs: `hdfs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpca.spark.jvm.errors import storage_errors

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["bring_in", "exists", "send_out"]


def send_out(context: SparkContext, file: Path, path: str) -> None:
    """Copy a file of this machine to `path`, a path or URL as Spark takes them. Raises OSError."""
    with _at(context, path) as (system, there, of):
        system.copyFromLocalFile(False, True, of(f"file://{file}"), there)


def bring_in(context: SparkContext, path: str, file: Path) -> None:
    """Copy what is at `path` to a file of this machine. Raises OSError."""
    with _at(context, path) as (system, there, of):
        system.copyToLocalFile(False, there, of(f"file://{file}"), True)


def exists(context: SparkContext, path: str) -> bool:
    """Whether there is anything at `path`. Raises OSError."""
    with _at(context, path) as (system, there, _):
        return bool(system.exists(there))


@contextmanager
def _at(context: SparkContext, path: str) -> Iterator[tuple[Any, Any, Any]]:
    jvm: Any = context._jvm
    of = jvm.org.apache.hadoop.fs.Path
    with storage_errors(path):
        there = of(path)
        yield there.getFileSystem(context._jsc.hadoopConfiguration()), there, of
