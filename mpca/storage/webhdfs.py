"""HDFS as a `Store` over WebHDFS, by the `hdfs` package, for processes without a JVM, such as those outside of the cluster.

Calls are repeated for a minute while a NameNode restarts or is in safe mode. A call may be carried out and only its answer
lost, so a repeated call that finds its work done counts it as its own. WebHDFS cannot sync: a closed file is on all DataNodes
of its replicas, and the NameNode's log is on its disk.

Of several NameNodes the active one is found by asking. Each has a client of its own: the package's client of several hosts asks
the next one by itself, so nobody would know that a call is a repetition.

A NameNode that asks for Kerberos gets the user's ticket (`kerberos.py`), over HTTPS alone. HTTPS is verified by the
certificates in REQUESTS_CA_BUNDLE, or else by certifi's. HADOOP_PROXY_USER counts as it does for Hadoop's own client.
"""

from __future__ import annotations

import errno
import getpass
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from http.cookiejar import DefaultCookiePolicy
from typing import Any, TypeVar

import hdfs
from requests import RequestException, Response, Session
from requests.exceptions import SSLError

from mpca.environment import environment
from mpca.errors import ConfigError
from mpca.storage.blocks import Piece, blocks
from mpca.storage.hadoop_errors import as_os_error
from mpca.storage.kerberos import HttpsOnly, Spnego, container_token
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
#: What Python's ssl says of a certificate that it does not take, and what to do about it.
_CERTIFICATES = (
    ("certificate has expired", "it has to be renewed, unless this machine's clock is wrong"),
    ("certificate is not yet valid", "is this machine's clock wrong?"),
    ("mismatch", "name the host as its certificate does"),
    ("", "name the file with the cluster's CA in REQUESTS_CA_BUNDLE"),
)
_PLAIN = (
    "WebHDFS asks for Kerberos, and this address is plain HTTP, by which everybody could read tokens: write it as "
    "swebhdfs://HOST:9871/path"
)


class _Body:
    """What a request sends: it is sent anew when a DataNode asks who we are. requests wants its length and its bytes."""

    def __init__(self, *pieces: Piece) -> None:
        self._pieces = pieces

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    def __iter__(self) -> Iterator[bytes]:
        return map(bytes, blocks(self._pieces, _CHUNK_BYTES))


class WebHdfsStore:
    """Files below one folder of HDFS. Thread-safe. Close it, since it keeps connections.

    Args:
        root: a ``webhdfs://`` or ``swebhdfs://`` location; its hosts, with ";" between them, are the NameNodes of one HDFS.
        patience_s: how long to repeat calls while the NameNode does not answer, in seconds.
        private: whether new files and folders are for their owner alone; folders above the root follow the cluster's umask.

    Raises:
        ConfigError: REQUESTS_CA_BUNDLE names no file.
    """

    def __init__(self, root: Location, patience_s: float = 60.0, private: bool = False) -> None:
        self.root, self._patience_s, self._private = root, patience_s, private
        web = "https" if root.scheme == "swebhdfs" else "http"
        user = root.user or environment("HADOOP_USER_NAME") or getpass.getuser()
        self._session = Session()
        self._session.trust_env = False  # a web proxy does not reach the cluster
        self._known = ""  # by what NameNodes know us: "ticket" or "token"; "": by the name that we say
        self._showing = threading.Lock()
        self._session.hooks["response"] = [_ask_for_ticket]
        if web == "https":
            self._session.mount("http://", HttpsOnly())
            self._session.verify = _certificates()
        self._hosts = [host for host in root.authority.split(";") if host]
        self._clients: deque[hdfs.Client] = deque()  # the one that answered last is the first
        self._proxy_user = environment("HADOOP_PROXY_USER") or None
        self._make_clients(partial(hdfs.InsecureClient, user=user, proxy=self._proxy_user))

    # ---- the port ----

    def create_exclusive(self, path: str, data: bytes) -> None:
        def create(again: bool) -> None:
            try:
                self._write(path, _Body(data), overwrite=False)
            except hdfs.HdfsError as error:
                if not (again and _names(error, "FileAlreadyExistsException") and self._holds(path, data)):
                    raise

        self._do(path, create)

    def write(self, path: str, *pieces: Piece) -> None:
        self._do(path, lambda again: self._write(path, _Body(*pieces), overwrite=True))

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

    @property
    def _client(self) -> hdfs.InsecureClient:
        return self._clients[0]

    def _read(self, path: str, offset: int, length: int | None) -> bytes:
        def read(again: bool) -> bytes:
            with self._client.read(_clean(path), offset=offset, length=length, chunk_size=_CHUNK_BYTES) as parts:
                return b"".join(parts)

        return self._do(path, read)

    def _write(self, path: str, data: _Body, overwrite: bool) -> None:
        if self._private:
            self._make_folder(_clean(path).rpartition("/")[0])
        if len(self._clients) > 1:  # one that stands by refuses all but this: its DataNode would wait for the other one
            self._there("")
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
        """Make a call, and repeat it while no NameNode answers. `call` gets whether it may have been carried out before."""
        until = time.monotonic() + self._patience_s
        again, told, asked = False, False, 0
        why: OSError | None = None  # of the NameNodes that were asked, not of one that stands by if another says more
        while True:
            client, known, standby = self._client, self._known, False
            try:
                return call(again)
            except _TicketWanted:
                if known:
                    raise PermissionError(errno.EACCES, f"HDFS does not take our {known}", self.describe(path)) from None
                with self._showing:  # of threads that are refused at once the first one does it for all
                    if not self._known:
                        self._show_who_we_are(path)
                continue
            except SSLError as error:
                raise PermissionError(errno.EACCES, _not_believed(error), self.describe(path)) from None
            except RequestException as error:
                failed = as_os_error(type(error).__name__, str(error), self.describe(path))
                passing = True
            except hdfs.HdfsError as error:
                text = str(error.message)
                failed = as_os_error(error.exception or "", text, self.describe(path))
                # A NameNode that is starting gives an empty answer.
                passing = _names(error, *_PASSING) or any(one in text for one in _PASSING_TEXTS) or text in ("", "b''")
                standby = _names(error, "StandbyException")
            if not passing:
                raise failed from None
            again = again or not standby
            why = failed if why is None or not standby else why
            asked += 1
            if client is self._client:  # else another thread has passed on meanwhile
                self._clients.rotate(-1)
            if asked % len(self._clients):
                continue
            if time.monotonic() > until:
                raise why from None
            if not told:
                log.warning("HDFS does not answer, and is asked again for %.0f s: %s", self._patience_s, why)
            told, why = True, None
            time.sleep(_AGAIN_EVERY_S)

    def _show_who_we_are(self, path: str) -> None:
        """From now on, show a token with every request, or else a ticket.

        Raises:
            PermissionError: not over plain HTTP.
            EnvironmentRefused: the extra is not installed.
        """
        if self.root.scheme != "swebhdfs":
            raise PermissionError(errno.EACCES, _PLAIN, self.describe(path))
        token = self._container_token()
        if token:
            self._make_clients(partial(hdfs.TokenClient, token=token))
            self._known = "token"
            return
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # to a cookie no NameNode shows its ticket
        self._session.auth = Spnego(self._hosts)
        self._make_clients(partial(hdfs.Client, proxy=self._proxy_user))  # the other clients would send a user's name
        self._known = "ticket"

    def _make_clients(self, make: Callable[..., hdfs.Client]) -> None:
        web = "https" if self.root.scheme == "swebhdfs" else "http"
        timeout = (WEBHDFS_CONNECT_S, WEBHDFS_READ_S)
        self._clients = deque(
            make(f"{web}://{host}", root=self.root.path, timeout=timeout, session=self._session) for host in self._hosts
        )

    def _container_token(self) -> str:
        named = environment("HADOOP_TOKEN_FILE_LOCATION")
        if not named:
            return ""
        with open(named, "rb") as file:
            return container_token(file.read(), self._hosts[0].partition(":")[0])


def _names(error: hdfs.HdfsError, *classes: str) -> bool:
    return error.exception in classes


class _TicketWanted(Exception):
    """The answer was 401."""


def _ask_for_ticket(response: Response, **_: Any) -> None:
    """Before the package sees a 401, for which it has only a line on stderr."""
    if response.status_code == 401:
        raise _TicketWanted


def _certificates() -> str | bool:
    """The file with the CA's certificates; True: those of certifi."""
    named = environment("REQUESTS_CA_BUNDLE")
    if named and not os.path.exists(named):
        raise ConfigError(f"REQUESTS_CA_BUNDLE={named}: no such file; it names the certificates of the CAs, as PEM")
    return named or True


def _not_believed(error: SSLError) -> str:
    """``CERTIFICATE_VERIFY_FAILED ...`` of a long text, and the remedy."""
    found = re.search(r"\[SSL: (.*?)\]?(?: \(_ssl|$)", str(error))
    text = found[1].replace("]", "") if found else str(error)
    return f"{text}; {next(remedy for words, remedy in _CERTIFICATES if words in text)}"


def _clean(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"path leaves the store: {path!r}")
    return path or "."
