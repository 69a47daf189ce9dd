"""How this process opens ``hdfs://`` when it has no Spark session: over WebHDFS, unless it is an agent, which has its executor.

An agent says so once (`use`), so that data sets need not know where they are read. Not for drivers: `mpca.api.stores`.
"""

from __future__ import annotations

from collections.abc import Callable

from mpca.storage.locations import Location, webhdfs_of
from mpca.storage.store import Store

__all__ = ["open_hdfs", "use"]

_opener: Callable[[Location], Store] | None = None


def use(opener: Callable[[Location], Store] | None) -> None:
    """Open ``hdfs://`` by this from now on; None: over WebHDFS."""
    global _opener
    _opener = opener


def open_hdfs(location: Location) -> Store:
    """Raises ConfigError when it is to be WebHDFS and it is not known which."""
    if _opener is not None:
        return _opener(location)
    from mpca.storage.webhdfs import WebHdfsStore

    return WebHdfsStore(webhdfs_of(location))
