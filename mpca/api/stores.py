"""Opens a driver's stores, so that they close with what else the driver opens. `mpca.storage.opening` chooses the kind."""

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
        location, patience_s, private: as for `mpca.storage.opening.open_store`.
        stack: closes what the caller opens.
        session: of Spark; without a session ``hdfs://`` is reached over WebHDFS.

    Raises:
        ConfigError, OSError: as `mpca.storage.opening.open_store`.
    """

    def through_jvm(location: Location) -> Store:
        from mpca.spark.hdfs.store import HdfsStore

        assert session is not None
        return HdfsStore(session, location, private)

    store = opening.open_store(location, None if session is None else through_jvm, patience_s=patience_s, private=private)
    stack.callback(getattr(store, "close", lambda: None))  # `Store` has no `close`: local files need none
    return store
