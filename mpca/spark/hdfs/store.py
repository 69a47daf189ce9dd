"""HDFS as a `Store` through the session's JVM, with its tokens, high availability and encryption.

Bytes pass through a segment, a piece at a time, so that a large backup needs no second copy in memory; py4j carries only names
and lengths. The client itself waits a minute for a NameNode that restarts or is in safe mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgpack
from py4j.java_gateway import JavaPackage

from mpca.errors import EnvironmentRefused
from mpca.spark.jvm.driver_segment import DriverSegment
from mpca.spark.jvm.errors import jvm_errors, storage_errors
from mpca.spark.jvm.jar import own_line
from mpca.storage.blocks import Piece, blocks
from mpca.storage.locations import Location
from mpca.wire.messages import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HdfsStore", "serve_files"]

_PIECE_BYTES = 16 << 20


def serve_files(spark: SparkSession, files: Files) -> None:
    """Read files of HDFS for a process of this machine, by the session's JVM, until that process ends.

    Raises:
        JvmError: its pipes cannot be opened, since it has ended.
    """
    context: Any = spark.sparkContext
    with jvm_errors("opening the pipes for files of the evaluator"):
        context._jvm.org.mpca.bridge.MpcaBridge.serveFiles(
            context._jsc.sc(), files.pid, files.requests_fd, files.answers_fd, files.memory_fd, files.memory_bytes
        )


class HdfsStore:
    """Files below one folder of HDFS. Any thread may call; one call at a time. Close it before the session."""

    def __init__(self, spark: SparkSession, root: Location, private: bool = False) -> None:
        """Open a folder of HDFS.

        Args:
            spark: the session.
            root: the folder.
            private: whether what is made is for its owner alone; folders above the root are made as the cluster says.

        Raises:
            OSError: the file system cannot be reached.
            EnvironmentRefused: the session has not our jar.
        """
        self.root = root
        self._lock = Lock()
        context: Any = spark.sparkContext
        bridge = context._jvm.org.mpca.bridge.MpcaBridge
        if isinstance(bridge, JavaPackage):
            raise EnvironmentRefused(
                f"the Spark session lacks {own_line().jar}, which reads and writes {root.text}: add it to spark.jars"
            )
        self._segment = DriverSegment()
        try:
            with storage_errors(root.text):
                self._java = bridge.files(context._jsc.sc(), root.text, self._segment.path, private)
        except BaseException:
            self._segment.close()
            raise

    # ---- the port ----

    def create_exclusive(self, path: str, data: bytes) -> None:
        self._write(path, data, exclusive=True)

    def write(self, path: str, *pieces: Piece) -> None:
        self._write(path, *pieces, exclusive=False)

    def sync(self, path: str) -> None:
        """Nothing to do: files are synced when they are written, and the NameNode logs a rename before it answers."""

    def rename(self, old: str, new: str) -> None:
        with self._calling(old):
            self._java.rename(self._at(old), self._at(new))

    def names(self, path: str) -> list[str]:
        with self._calling(path):
            names: list[str] = msgpack.unpackb(self._java.names(self._at(path)), raw=False)
            return names

    def read(self, path: str) -> bytes:
        with self._calling(path):
            return self._read(path, 0, int(self._java.size(self._at(path))))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        with self._calling(path):
            return self._read(path, offset, max(0, min(length, int(self._java.size(self._at(path))) - offset)))

    def size(self, path: str) -> int:
        with self._calling(path):
            return int(self._java.size(self._at(path)))

    def exists(self, path: str) -> bool:
        with self._calling(path):
            return bool(self._java.exists(self._at(path)))

    def delete(self, path: str) -> None:
        with self._calling(path):
            self._java.delete(self._at(path))

    def rmdir(self, path: str) -> None:
        with self._calling(path):
            self._java.rmdir(self._at(path))

    def describe(self, path: str) -> str:
        return (self.root / path).text if path else self.root.text

    def hosts(self, path: str) -> dict[str, list[str]]:
        """The hosts that hold most of each file in a folder. `Store` has no such method: other stores have no hosts."""
        with self._calling(path):
            hosts: dict[str, list[str]] = msgpack.unpackb(self._java.hosts(self._at(path)), raw=False)
            return hosts

    def close(self) -> None:
        """Free what the JVM holds for this store. A JVM that is gone holds nothing."""
        with suppress(OSError), self._calling(""):
            self._java.close()
        self._segment.close()

    # ---- inside ----

    def _write(self, path: str, *pieces: Piece, exclusive: bool) -> None:
        with self._calling(path):
            self._java.create(self._at(path), exclusive)
            try:
                for block in blocks(pieces, _PIECE_BYTES):
                    self._java.append(self._segment.write(memoryview(block)))
                self._java.finish()
            except BaseException:
                self._java.abandon()
                raise

    def _read(self, path: str, offset: int, length: int) -> bytes:
        pieces = []
        while length > 0:
            asked = min(length, _PIECE_BYTES)
            self._segment.reserve(asked)
            got = int(self._java.read(self._at(path), offset, asked))
            pieces.append(self._segment.read(got))
            if got < asked:  # somebody shortened the file meanwhile
                break
            offset, length = offset + got, length - got
        return b"".join(pieces)

    @contextmanager
    def _calling(self, path: str) -> Iterator[None]:
        with self._lock, storage_errors(self.describe(path)):
            yield

    def _at(self, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"path leaves the store: {path!r}")
        return self.describe(path)
