"""The one place that opens a store for a location: files of this machine, HDFS by a JVM if one is at hand, else WebHDFS.

An agent says once that its executor's JVM is at hand (`use`), so that data sets need not know where they are read. A driver
names its session at every opening: `mpca.api.stores`.
"""

from __future__ import annotations

from collections.abc import Callable

from mpca.storage.local import LocalStore
from mpca.storage.locations import Location, webhdfs_of
from mpca.storage.store import Store

__all__ = ["open_store", "use"]

_of_process: Callable[[Location], Store] | None = None


def use(opener: Callable[[Location], Store] | None) -> None:
    """Open ``hdfs://`` by this from now on where nothing else is said; None: over WebHDFS."""
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
    """A store whose root is `location`. One that has a `close` is the caller's to close.

    Args:
        location: need not exist.
        through_jvm: opens ``hdfs://``; None: as `use` said, or over WebHDFS, by the files in HADOOP_CONF_DIR.
        patience_s: how long WebHDFS may be away; a JVM's client has its own patience.
        private: what is made is for its owner alone: run folders, backups.
        links: files of this machine may be links to others.

    Raises:
        ConfigError: which WebHDFS serves it is not known.
        OSError: the JVM's client cannot have the file system.
    """
    if location.is_local:
        return LocalStore(location.path, private, links)
    through_jvm = through_jvm or _of_process
    if location.scheme == "hdfs" and through_jvm is not None:
        return through_jvm(location)
    from mpca.storage.webhdfs import WebHdfsStore

    return WebHdfsStore(webhdfs_of(location) if location.scheme == "hdfs" else location, patience_s, private)
