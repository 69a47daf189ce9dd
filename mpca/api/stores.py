"""The one place that opens a store for a location: HDFS through the JVM where a session is, over WebHDFS where none is."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from mpca.storage import LocalStore, Location, Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["open_store"]


def open_store(
    location: Location, stack: ExitStack, session: SparkSession | None = None, patience_s: float = 60.0, private: bool = False
) -> Store:
    """A store whose root is `location`, closed by `stack`.

    Args:
        location: need not exist.
        stack: of what the caller opens.
        session: of Spark; without one ``hdfs://`` is reached over WebHDFS, by the files in HADOOP_CONF_DIR.
        patience_s: how long WebHDFS may be away; the JVM's client has its own patience.
        private: what is made is for its owner alone: run folders, backups.

    Raises:
        ConfigError: which WebHDFS serves it is not known.
        OSError: the JVM's client cannot have the file system.
    """
    if location.is_local:
        return LocalStore(location.path, private)
    if location.scheme == "hdfs" and session is not None:
        from mpca.spark.hdfs.store import HdfsStore

        through_jvm = HdfsStore(session, location, private)
        stack.callback(through_jvm.close)
        return through_jvm
    from mpca.storage.locations import webhdfs_of
    from mpca.storage.webhdfs import WebHdfsStore

    over_web = WebHdfsStore(webhdfs_of(location) if location.scheme == "hdfs" else location, patience_s, private)
    stack.callback(over_web.close)
    return over_web
