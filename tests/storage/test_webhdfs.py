"""What WebHDFS refuses for good. All else of this store is tested on a real NameNode: tests/hadoop/test_stores.py."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mpca.storage import Location
from mpca.storage.webhdfs import WebHdfsStore


class _Secured(BaseHTTPRequestHandler):
    """Answers as Hadoop's web server does to whoever has no ticket."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", "Negotiate")
        self.end_headers()

    do_PUT = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def store() -> Iterator[WebHdfsStore]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Secured) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        store = WebHdfsStore(Location.parse(f"webhdfs://127.0.0.1:{server.server_port}/data"))
        yield store
        store.close()
        server.shutdown()


def test_a_cluster_with_kerberos_is_named_with_the_remedy(store: WebHdfsStore) -> None:
    for call in (lambda: store.read("set/manifest.json"), lambda: store.names("set"), lambda: store.write("set/x", b"1")):
        with pytest.raises(PermissionError, match=r"asks for Kerberos.*hdfs dfs -put.*/data/set"):
            call()
