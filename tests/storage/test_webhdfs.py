"""What WebHDFS refuses for good. All else of this store is tested on a real NameNode: tests/hadoop/test_stores.py."""

from __future__ import annotations

import base64
import io
import json
import logging
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from requests.adapters import HTTPAdapter

from mpca.errors import ConfigError
from mpca.storage import Location
from mpca.storage.kerberos import container_token
from mpca.storage.webhdfs import WebHdfsStore

pytestmark = pytest.mark.long


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


def test_a_ticket_is_not_shown_over_plain_http(store: WebHdfsStore) -> None:
    for call in (lambda: store.read("set/manifest.json"), lambda: store.names("set"), lambda: store.write("set/x", b"1")):
        with pytest.raises(PermissionError, match=r"asks for Kerberos.*plain HTTP.*swebhdfs://HOST:9871/path.*/data/set"):
            call()


class _NameNode(ThreadingHTTPServer):
    """Answers all that it is asked as `answer` says: a Java exception, a result, or nothing at all before it hangs up."""

    def __init__(self, answer: Callable[[str], dict | str | None]) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), _Answering)
        self.answer = answer


class _Answering(BaseHTTPRequestHandler):
    server: _NameNode

    def do_GET(self) -> None:
        operation = self.path.partition("op=")[2].partition("&")[0]
        self.server.asked.append(operation)
        said = self.server.answer(operation)
        if said is None:
            self.close_connection = True
            return
        refused = isinstance(said, str)
        body = json.dumps({"RemoteException": {"exception": said, "message": f"{said} says so"}} if refused else said).encode()
        self.send_response(403 if refused else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_GET

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _two(first: Callable[[str], dict | str | None], second: Callable[[str], dict | str | None]) -> Iterator[tuple]:
    """A store of two NameNodes, and these."""
    with ExitStack() as stack:
        both = [stack.enter_context(_NameNode(answer)) for answer in (first, second)]
        for one in both:
            threading.Thread(target=one.serve_forever, daemon=True).start()
            stack.callback(one.shutdown)
        hosts = ";".join(f"127.0.0.1:{one.server_port}" for one in both)
        store = WebHdfsStore(Location.parse(f"webhdfs://{hosts}/data"), patience_s=0.0)
        stack.callback(store.close)
        yield store, *both


def _there(operation: str) -> dict:
    return {"FileStatus": {"length": 7, "type": "FILE"}}


def test_the_active_name_node_is_asked_next_and_first_from_then_on(caplog: pytest.LogCaptureFixture) -> None:
    with _two(lambda _: "StandbyException", _there) as (store, standby, active), caplog.at_level(logging.WARNING):
        assert [store.size("x"), store.size("x")] == [7, 7]
        assert (len(standby.asked), len(active.asked)) == (1, 2)
    assert caplog.text == "", "one that stands by is no trouble"


def test_a_rename_whose_answer_was_lost_with_the_name_node_counts_as_done_at_the_other() -> None:
    renamed = []

    def active(operation: str) -> dict | None:
        if operation == "RENAME":
            renamed.append(operation)
            return None
        return {"boolean": True}

    def other(operation: str) -> dict | str:
        assert renamed, "the other one is asked later"
        if operation == "GETFILESTATUS":  # the new name is there, the old one is not
            return _there("") if len([one for one in names.asked if one == operation]) == 1 else "FileNotFoundException"
        return "FileNotFoundException" if operation == "RENAME" else {"boolean": True}

    with _two(active, other) as (store, _, names):
        store.rename("old", "new")
        assert names.asked == ["MKDIRS", "RENAME", "GETFILESTATUS", "GETFILESTATUS"]


def test_of_two_that_refuse_the_one_that_does_not_stand_by_gives_the_reason() -> None:
    for first, second in (("SafeModeException", "StandbyException"), ("StandbyException", "SafeModeException")):
        with _two(lambda _, one=first: one, lambda _, one=second: one) as (store, *both):
            with pytest.raises(OSError, match="SafeModeException says so"):
                store.size("x")
            assert [len(one.asked) for one in both] == [1, 1]


def test_two_that_stand_by_are_an_error_after_the_patience() -> None:
    with _two(lambda _: "StandbyException", lambda _: "StandbyException") as (store, *both):
        with pytest.raises(OSError, match=r"StandbyException says so.*webhdfs://127\.0\.0\.1:\d+;127\.0\.0\.1:\d+/data/x"):
            store.size("x")
        assert [len(one.asked) for one in both] == [1, 1]


def test_one_that_stands_by_is_not_asked_to_write_since_it_would_send_the_writer_on_to_wait() -> None:
    def standby(operation: str) -> str | None:
        return None if operation == "CREATE" else "StandbyException"

    with _two(standby, lambda operation: "AccessControlException" if operation == "CREATE" else _there("")) as (
        store,
        one,
        other,
    ):
        with pytest.raises(PermissionError):
            store.write("x", b"1")
        assert (one.asked, other.asked) == (["GETFILESTATUS"], ["GETFILESTATUS", "CREATE"])


def test_a_file_of_certificates_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such.pem")
    with pytest.raises(ConfigError, match=r"REQUESTS_CA_BUNDLE=/no/such\.pem: no such file"):
        WebHdfsStore(Location.parse("swebhdfs://nn1:9871/data"))


def _tokens(*tokens: tuple[bytes, bytes]) -> bytes:
    """A file of tokens of these kinds and services, with identifiers as long as Hadoop's, which need two bytes of length."""

    def field(data: bytes) -> bytes:
        return (bytes([len(data)]) if len(data) < 128 else b"\x8f" + bytes([len(data)])) + data

    entries = [field(b"alias") + _token(kind, service, field) for kind, service in tokens]
    return b"HDTS\0" + bytes([len(entries)]) + b"".join(entries)


def _token(kind: bytes, service: bytes, field: Callable[[bytes], bytes]) -> bytes:
    return field(service * 10) + field(b"p" * 20) + field(kind) + field(service)


def test_the_token_of_a_container_is_that_of_the_cluster() -> None:
    hdfs = b"HDFS_DELEGATION_TOKEN"
    file = _tokens((b"YARN_AM_RM_TOKEN", b""), (hdfs, b"192.168.100.11:8020"), (hdfs, b"192.168.100.12:8020"))
    for host in ("192.168.100.12", "192.168.100.11"):
        token = container_token(file, host)
        assert base64.urlsafe_b64decode(token + "==").endswith(b"\x15HDFS_DELEGATION_TOKEN\x13" + host.encode() + b":8020")
    assert container_token(file, "another") == container_token(file, "192.168.100.11"), "the first"
    assert container_token(_tokens((b"YARN_AM_RM_TOKEN", b"")), "nn1") == ""
    for damaged in (b"", b"HDTS\1", file[:20]):
        with pytest.raises(ValueError, match="file of tokens"):
            container_token(damaged, "nn1")


def test_two_threads_that_are_refused_at_once_both_show_the_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_bytes(_tokens((b"HDFS_DELEGATION_TOKEN", b"nn1:8020")))
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
    both, shown = threading.Barrier(2, timeout=30), threading.Event()

    def send(_: HTTPAdapter, request: requests.PreparedRequest, **__: Any) -> requests.Response:
        answer = requests.Response()
        answer.request, answer.url = request, str(request.url)
        answer.status_code = 200 if "delegation=" in answer.url else 401
        answer.raw = io.BytesIO(b'{"FileStatus": {"length": 7}}' if answer.status_code == 200 else b"")
        if answer.status_code == 401:
            both.wait()  # each is refused before the other has shown anything,
            if "/b?" in answer.url:
                shown.wait(30)  # and one of them hears of it when the other has
        else:
            shown.set()
        return answer

    monkeypatch.setattr(HTTPAdapter, "send", send)
    with closing(WebHdfsStore(Location.parse("swebhdfs://nn1:9871/data"))) as store, ThreadPoolExecutor(2) as threads:
        assert list(threads.map(store.size, ["a", "b"])) == [7, 7]


@pytest.mark.parametrize(
    ("extension", "days", "known", "said"),
    [
        ("IP:127.0.0.1", "0", True, "certificate has expired; it has to be renewed, unless this machine's clock is wrong"),
        ("DNS:elsewhere.example", "2", True, "mismatch.*; name the host as its certificate does"),
        ("IP:127.0.0.1", "2", False, "self.signed certificate; name the file with the cluster's CA in REQUESTS_CA_BUNDLE"),
        ("IP:127.0.0.1", "2", True, ""),
    ],
    ids=["expired", "another host's", "of an unknown CA", "good"],
)
def test_a_certificate_that_is_not_good_is_refused_with_the_remedy_and_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extension: str, days: str, known: bool, said: str
) -> None:
    key, pem, csr = (str(tmp_path / name) for name in ("key.pem", "cert.pem", "cert.csr"))
    (tmp_path / "names").write_text(f"subjectAltName={extension}")
    request = ["req", "-new", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=namenode"]
    signing = ["x509", "-req", "-in", csr, "-signkey", key, "-days", days, "-extfile", str(tmp_path / "names"), "-out", pem]
    for words in ([*request, "-keyout", key, "-out", csr], signing):
        subprocess.run(["openssl", *words], check=True, capture_output=True)
    if days == "0":  # it ends with the second in which it was made: OpenSSL 3.5 makes none that ends before it begins
        time.sleep(1.1)
    if known:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    with _NameNode(_there) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with closing(WebHdfsStore(Location.parse(f"swebhdfs://127.0.0.1:{server.server_port}/data"))) as store:
            if said:
                with pytest.raises(PermissionError, match=said):
                    store.size("x")
            else:
                assert store.size("x") == 7
        server.shutdown()
    assert bool(server.asked) is not bool(said)
