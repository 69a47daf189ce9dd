"""A proxy before WebHDFS that loses: a request, or only its answer; or it brings a request late, after its repetition.

It stands before the NameNode, and before the DataNodes to which that sends us.
"""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qs, urlsplit

__all__ = ["LATE", "REPLY", "REQUEST", "LosingProxy"]

REQUEST, REPLY, LATE = "request", "reply", "late"
_LATE_S = 2.5  # after a repetition, which comes a second later


class LosingProxy:
    """A context manager. Of each operation, at each kind of daemon, it loses the first so many.

    Args:
        namenode: ``host:port`` of its web address.
        loses: REQUEST, REPLY or LATE.
        times: how many of each operation.
    """

    def __init__(self, namenode: str, loses: str, times: int) -> None:
        self.namenode, self.loses, self._times = namenode, loses, times
        self.lost: Counter[str] = Counter()  # by daemon and operation, such as "namenode RENAME"
        self._lock = threading.Lock()
        self._late: list[threading.Timer] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.proxy = self  # type: ignore[attr-defined]  # for its handlers
        self.address = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> LosingProxy:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for one in self._late:
            one.join()
        self._server.shutdown()
        self._server.server_close()

    def takes(self, what: str) -> bool:
        """Whether this one is lost."""
        with self._lock:
            if self.lost[what] >= self._times:
                return False
            self.lost[what] += 1
            return True

    def later(self, request: _Request) -> None:
        timer = threading.Timer(_LATE_S, request.answer)
        self._late.append(timer)
        timer.start()


class _Request:
    """What a client asked, and of whom."""

    def __init__(self, handler: BaseHTTPRequestHandler, proxy: LosingProxy) -> None:
        self.proxy, self.method = proxy, handler.command
        kind, _, rest = handler.path[1:].partition("/")
        self.daemon = "datanode" if kind == "datanode" else "namenode"
        self.host, self.path = (
            (rest.split("/", 1)[0], f"/{rest.split('/', 1)[1]}") if kind == "datanode" else ("", handler.path)
        )
        self.operation = parse_qs(urlsplit(handler.path).query)["op"][0].upper()
        self.headers = {
            key: value for key, value in handler.headers.items() if key.lower() not in ("host", "transfer-encoding")
        }
        if handler.headers.get("Transfer-Encoding") == "chunked":
            self.body = b""
            while size := int(handler.rfile.readline(), 16):
                self.body += handler.rfile.read(size)
                handler.rfile.readline()
            handler.rfile.readline()
        else:
            self.body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))

    def answer(self) -> tuple[int, list[tuple[str, str]], bytes]:
        """As the daemon gives it; an address of a DataNode leads back to the proxy."""
        connection = http.client.HTTPConnection(self.host or self.proxy.namenode, timeout=60)
        connection.request(self.method, self.path, self.body or None, self.headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        headers = []
        for key, value in answer.getheaders():
            if key.lower() == "location":
                value = value.replace("http://", f"http://{self.proxy.address}/datanode/", 1)
            if key.lower() not in ("transfer-encoding", "connection", "content-length"):
                headers.append((key, value))
        return answer.status, headers, body


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        proxy: LosingProxy = self.server.proxy  # type: ignore[attr-defined]
        request = _Request(self, proxy)
        if proxy.takes(f"{request.daemon} {request.operation}"):
            if proxy.loses == REPLY:
                request.answer()
            elif proxy.loses == LATE:
                proxy.later(request)
            self.close_connection = True
            return
        status, headers, body = request.answer()
        self.send_response_only(status)
        for key, value in headers:
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = _serve

    def log_message(self, *_: object) -> None:
        pass
