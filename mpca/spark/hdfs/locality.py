"""Which hosts hold the shards of a data set on HDFS, asked once a run, so that agents read first what lies on their own host.

This is a preference: when the hosts cannot be found out, more bytes cross the network, and the run goes on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mpca.data.manifest import load_manifest
from mpca.errors import ConfigError
from mpca.spark.hdfs.store import HdfsStore
from mpca.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["shard_hosts"]

log = logging.getLogger("mpca.data")


def shard_hosts(spark: SparkSession, path: str) -> tuple[tuple[str, ...], ...]:
    """The hosts that hold each shard of the training split; empty when `path` is not on HDFS, or the hosts are not known.

    Args:
        path: as `data.path` of a configuration.
    """
    if not path.startswith("hdfs:"):
        return ()
    try:
        store = HdfsStore(spark, Location.parse(path))
        try:
            shards, hosts = load_manifest(store).splits["train"].shards, store.hosts("")
        finally:
            store.close()
    except (OSError, ConfigError) as error:
        log.warning("the hosts that hold the data are not known, so agents read from any host: %s", error)
        return ()
    return tuple(tuple(hosts.get(shard.name, ())) for shard in shards)
