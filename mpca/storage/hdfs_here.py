"""Opens ``hdfs://`` in a process without a Spark session: an agent reads through its executor, other processes over WebHDFS.

An agent calls `use` once, so data sets do not depend on the process that reads them. Not for drivers: `mpca.api.stores`.
"""

from __future__ import annotations

from collections.abc import Callable

from mpca.storage.locations import Location, webhdfs_of
from mpca.storage.store import Store

__all__ = ["open_hdfs", "use"]

_opener: Callable[[Location], Store] | None = None


def use(opener: Callable[[Location], Store] | None) -> None:
    """Set how this process opens ``hdfs://`` from now on; None: over WebHDFS."""
    global _opener
    _opener = opener


def open_hdfs(location: Location) -> Store:
    """The store of an ``hdfs://`` location.

    Raises:
        ConfigError: WebHDFS would be used, and its address is not known.
    """
    if _opener is not None:
        return _opener(location)
    from mpca.storage.webhdfs import WebHdfsStore

    return WebHdfsStore(webhdfs_of(location))
