"""HDFS as a `Store` over WebHDFS, by the `hdfs` package, for processes without a JVM, such as those outside of the cluster.

Calls are repeated for a minute while a NameNode restarts or is in safe mode. A call may be carried out and only its answer
lost, so a repeated call that finds its work done counts it as its own. WebHDFS cannot sync: a closed file is on all DataNodes
of its replicas, and the NameNode's log is on its disk.
"""

from __future__ import annotations

import errno
import getpass
import logging
import time
from collections.abc import Callable
from typing import TypeVar

import hdfs
from requests import RequestException, Session

from mpca.environment import environment
from mpca.storage.hadoop_errors import as_os_error
from mpca.storage.locations import Location
from mpca.timeouts import WEBHDFS_CONNECT_S, WEBHDFS_READ_S

__all__ = ["WebHdfsStore"]

log = logging.getLogger("mpca.storage")
Result = TypeVar("Result")
_CHUNK_BYTES = 1 << 20

_AGAIN_EVERY_S = 1.0
_FILE, _FOLDER = "600", "700"
#: Errors of a NameNode, or about it, while it stops and starts.
_PASSING = ("SafeModeException", "StandbyException", "RetriableException", "ConnectException", "EOFException")
_PASSING_TEXTS = ("Failed to find datanode", "End of File", "Connection reset", "Connection refused", "is in safe mode")
_KERBEROS = (
    "WebHDFS asks for Kerberos, which mpca supports only where a JVM reads and writes for it (agents' reading of hdfs://, run "
    "folders, backups): ingest into a folder of this machine and copy it with `hdfs dfs -put`"
)


class WebHdfsStore:
    """Files below one folder of HDFS. Thread-safe. Close it, since it keeps connections.

    Args:
        root: a ``webhdfs://`` or ``swebhdfs://`` location.
        patience_s: how long to repeat calls while the NameNode does not answer, in seconds.
        private: whether new files and folders are for their owner alone; folders above the root follow the cluster's umask.
    """

    def __init__(self, root: Location, patience_s: float = 60.0, private: bool = False) -> None:
        self.root, self._patience_s, self._private = root, patience_s, private
        web = "https" if root.scheme == "swebhdfs" else "http"
        user = root.user or environment("HADOOP_USER_NAME") or getpass.getuser()
        self._session = Session()
        self._session.trust_env = False  # a web proxy does not reach the cluster
        hosts = ";".join(f"{web}://{host}" for host in root.authority.split(";"))
        self._client = hdfs.InsecureClient(
            hosts, user=user, root=root.path, timeout=(WEBHDFS_CONNECT_S, WEBHDFS_READ_S), session=self._session
        )

    # ---- the port ----

    def create_exclusive(self, path: str, data: bytes) -> None:
        def create(again: bool) -> None:
            try:
                self._write(path, data, overwrite=False)
            except hdfs.HdfsError as error:
                if not (again and _names(error, "FileAlreadyExistsException") and self._holds(path, data)):
                    raise

        self._do(path, create)

    def write(self, path: str, data: bytes) -> None:
        self._do(path, lambda again: self._write(path, data, overwrite=True))

    def sync(self, path: str) -> None:
        """Do nothing: WebHDFS cannot sync (see the module's docstring)."""

    def rename(self, old: str, new: str) -> None:
        parent = _clean(new).rpartition("/")[0]

        def rename(again: bool) -> None:
            self._make_folder(parent)
            try:
                # With the option "none" HDFS refuses an existing folder, instead of moving into it. The package's own
                # `rename` has no options.
                self._client._rename(_clean(old), destination=self._client.resolve(_clean(new)), renameoptions="NONE")
            except hdfs.HdfsError:
                if not (again and self._there(new) and not self._there(old)):
                    raise

        self._do(old, rename)

    def names(self, path: str) -> list[str]:
        def names(again: bool) -> list[str]:
            try:
                return sorted(self._client.list(_clean(path)))
            except hdfs.HdfsError as error:
                if _names(error, "FileNotFoundException"):
                    return []
                raise

        return self._do(path, names)

    def read(self, path: str) -> bytes:
        return self._read(path, 0, None)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        size = self.size(path)  # HDFS refuses an offset beyond the end
        return self._read(path, offset, min(length, size - offset)) if offset < size and length else b""

    def size(self, path: str) -> int:
        return self._do(path, lambda again: int(self._client.status(_clean(path))["length"]))

    def exists(self, path: str) -> bool:
        return self._do(path, lambda again: self._there(path))

    def delete(self, path: str) -> None:
        self._do(path, lambda again: self._client.delete(_clean(path), recursive=True))

    def rmdir(self, path: str) -> None:
        def rmdir(again: bool) -> None:
            try:
                self._client.delete(_clean(path), recursive=False)
            except hdfs.HdfsError as error:
                if not _names(error, "PathIsNotEmptyDirectoryException"):
                    raise

        self._do(path, rmdir)

    def describe(self, path: str) -> str:
        return (self.root / path).text if path else self.root.text

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    # ---- inside ----

    def _read(self, path: str, offset: int, length: int | None) -> bytes:
        def read(again: bool) -> bytes:
            with self._client.read(_clean(path), offset=offset, length=length, chunk_size=_CHUNK_BYTES) as parts:
                return b"".join(parts)

        return self._do(path, read)

    def _write(self, path: str, data: bytes, overwrite: bool) -> None:
        if self._private:
            self._make_folder(_clean(path).rpartition("/")[0])
        permission = _FILE if self._private else None
        self._client.write(_clean(path), data, overwrite=overwrite, permission=permission)

    def _make_folder(self, path: str) -> None:
        if self._private and not self._there(""):
            self._client.makedirs(self.root.parent.path)
        self._client.makedirs(path or ".", permission=_FOLDER if self._private else None)

    def _there(self, path: str) -> bool:
        try:
            self._client.status(_clean(path))
        except hdfs.HdfsError as error:
            if _names(error, "FileNotFoundException"):
                return False
            raise
        return True

    def _holds(self, path: str, data: bytes) -> bool:
        with self._client.read(_clean(path), chunk_size=_CHUNK_BYTES) as parts:
            return b"".join(parts) == data

    def _do(self, path: str, call: Callable[[bool], Result]) -> Result:
        """Make a call, and repeat it while the NameNode does not answer. `call` gets whether it is a repetition."""
        until = time.monotonic() + self._patience_s
        again = False
        while True:
            try:
                return call(again)
            except RequestException as error:
                failed = as_os_error(type(error).__name__, str(error), self.describe(path))
                passing = True
            except hdfs.HdfsError as error:
                text = str(error.message)
                failed = as_os_error(error.exception or "", text, self.describe(path))
                if text.startswith("Authentication failure"):  # the package's own words for 401
                    failed = PermissionError(errno.EACCES, _KERBEROS, self.describe(path))
                # A NameNode that is starting gives an empty answer.
                passing = _names(error, *_PASSING) or any(one in text for one in _PASSING_TEXTS) or text in ("", "b''")
            if not passing or time.monotonic() > until:
                raise failed from None
            if not again:
                log.warning("HDFS does not answer, and is asked again for %.0f s: %s", self._patience_s, failed)
            again = True
            time.sleep(_AGAIN_EVERY_S)


def _names(error: hdfs.HdfsError, *classes: str) -> bool:
    return error.exception in classes


def _clean(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"path leaves the store: {path!r}")
    return path or "."
