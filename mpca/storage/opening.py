"""The one place that opens the store of a location: local files, HDFS through a JVM if the process has one, else WebHDFS.

An agent calls `use` once to read through its executor's JVM, so data sets do not depend on the process that reads them. A
driver passes its session's JVM at each call: `mpca.api.stores`.
"""

from __future__ import annotations

from collections.abc import Callable

from mpca.storage.local import LocalStore
from mpca.storage.locations import Location, webhdfs_of
from mpca.storage.store import Store

__all__ = ["open_store", "use"]

_of_process: Callable[[Location], Store] | None = None


def use(opener: Callable[[Location], Store] | None) -> None:
    """Set how this process opens ``hdfs://`` from now on, unless a call says otherwise; None: over WebHDFS."""
    global _of_process
    _of_process = opener


def open_store(
    location: Location,
    through_jvm: Callable[[Location], Store] | None = None,
    *,
    patience_s: float = 60.0,
    private: bool = False,
    links: bool = False,
) -> Store:
    """Open a store whose root is `location`. If the store has a `close`, the caller must call it.

    Args:
        location: the root; it need not exist.
        through_jvm: opens ``hdfs://``; None: by the function given to `use`, or over WebHDFS by the files in HADOOP_CONF_DIR.
        patience_s: how long to repeat calls while WebHDFS does not answer, in seconds; a JVM's client has its own limit.
        private: whether new files are for their owner alone, as in run folders and backups.
        links: whether local files may be links.

    Raises:
        ConfigError: the address of WebHDFS is not known.
        OSError: the JVM's client cannot open the file system.
    """
    if location.is_local:
        return LocalStore(location.path, private, links)
    through_jvm = through_jvm or _of_process
    if location.scheme == "hdfs" and through_jvm is not None:
        return through_jvm(location)
    from mpca.storage.webhdfs import WebHdfsStore

    return WebHdfsStore(webhdfs_of(location) if location.scheme == "hdfs" else location, patience_s, private)
