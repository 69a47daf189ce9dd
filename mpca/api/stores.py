"""A driver's stores, closed with what else it opens. Which store it is, `mpca.storage.opening` decides."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from mpca.storage import Location, Store, opening

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["open_store"]


def open_store(
    location: Location, stack: ExitStack, session: SparkSession | None = None, patience_s: float = 60.0, private: bool = False
) -> Store:
    """A store whose root is `location`, closed by `stack`.

    Args:
        location, patience_s, private: as of `mpca.storage.opening.open_store`.
        stack: of what the caller opens.
        session: of Spark; without one ``hdfs://`` is reached over WebHDFS.

    Raises:
        ConfigError, OSError: as there.
    """

    def through_jvm(location: Location) -> Store:
        from mpca.spark.hdfs.store import HdfsStore

        assert session is not None
        return HdfsStore(session, location, private)

    store = opening.open_store(location, None if session is None else through_jvm, patience_s=patience_s, private=private)
    stack.callback(getattr(store, "close", lambda: None))  # not of the port: local files have nothing to close
    return store
