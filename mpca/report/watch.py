"""`mpca watch`: shows a run in a browser while it goes on, without reloads.

A thread reads what is new in the run's records and draws the parts of the page. The server gives the page, and a stream of
events (``text/event-stream``), each with the parts that have changed::

    {"count": number of parts, "parts": {index: HTML}, "said": text, "over": whether the run has ended}

It listens on this machine alone, and answers nobody who does not know the address, which has a random word in it: other users
of the machine may connect too. Who asks nothing for ten seconds, or takes nothing, is cut off.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from mpca.report.blocks import document, policy
from mpca.report.follow import Follower
from mpca.report.load import gather
from mpca.report.page import running
from mpca.units import format_duration

__all__ = ["Board", "follow_run", "served"]

_PATIENCE_S = 10.0  # with a browser
_BREATH_S = 5.0  # between signs of life of a stream
_LAST_S = 5.0  # for browsers to take the last state
_DRAWING = 5  # times as long as reading and drawing took, nothing is read
_QUIET_S = 30.0
_SVG = re.compile(r"<!--svg-->.*?<!--/svg-->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Shown:
    version: int
    parts: tuple[str, ...]
    said: str
    over: bool


class Board:
    """The newest state of the page: one thread shows, others wait for it."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.shown = _Shown(0, (), "", False)
        self._changed = threading.Condition()
        self._streams = 0

    def show(self, parts: tuple[str, ...], said: str, over: bool = False) -> None:
        """Show this, if it is not what was shown."""
        with self._changed:
            before = self.shown
            if (before.parts, before.said, before.over) != (parts, said, over):
                self.shown = _Shown(before.version + 1, parts, said, over)
                self._changed.notify_all()

    def states(self) -> Iterator[_Shown | None]:
        """Each new state, beginning with what is shown; None from time to time. Ends after that of the run's end."""
        version = 0
        with self._changed:
            self._streams += 1
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda version=version: self.shown.version > version, _BREATH_S)  # type: ignore[misc]
                    newest = self.shown
                yield newest if newest.version > version else None
                if newest.over:
                    return
                version = newest.version
        finally:
            with self._changed:
                self._streams -= 1
                self._changed.notify_all()

    def wait_until_seen(self, seconds: float = _LAST_S) -> None:
        """Until nobody reads any more."""
        with self._changed:
            self._changed.wait_for(lambda: not self._streams, seconds)


def follow_run(follower: Follower, board: Board, where: str, every_s: float) -> str:
    """Show what a run writes, until it has ended.

    Args:
        follower: of its records.
        board: shows it.
        where: the run's folder, for people.
        every_s: how often to look, in seconds; less often where reading or drawing takes long.

    Returns:
        How it ended.

    Raises:
        ConfigError: what lies there are no records.
    """
    parts: tuple[str, ...] = ()
    newest = time.monotonic()
    while True:
        begun = time.monotonic()
        trouble, ended = "", None
        try:
            if follower.look():
                newest = begun
                records = gather(follower.records, board.title)
                board.title, ended = records.name, records.end
                parts = tuple(_SVG.sub("", part) for part in running(records))
        except OSError as error:
            trouble = f"{where} cannot be read, trying again: {error.strerror or error}"
        if ended is not None:
            board.show(parts, f"the run has ended; its report: {where}/report.html", over=True)
            return f"{ended.status}: {ended.reason.partition(chr(10))[0]}"
        quiet = begun - newest
        if not trouble and not follower.records:
            trouble = f"waiting: there is no records.jsonl in {where} yet"
        elif not trouble and quiet >= _QUIET_S:
            trouble = f"no new record for {format_duration(quiet // 10 * 10)}"
        board.show(parts, trouble or f"follows {where}")
        time.sleep(max(every_s, _DRAWING * (time.monotonic() - begun)))


@contextmanager
def served(board: Board, port: int = 0) -> Iterator[str]:
    """Serve the page on this machine while the block runs.

    Args:
        board: what is shown.
        port: 0: a free one.

    Yields:
        The address, which is for those who may see the run.

    Raises:
        OSError: the port cannot be had.
    """
    token = secrets.token_urlsafe(24)
    server = _Server(("127.0.0.1", port), partial(_Handler, board, token))
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="mpca-watch", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/{token}/"
        board.wait_until_seen()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has gone is no error."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _PATIENCE_S

    def __init__(self, board: Board, token: str, *args: Any) -> None:
        self._board, self._token = board, token
        super().__init__(*args)

    def do_GET(self) -> None:
        asked = self.path.encode("latin-1", "replace")
        if secrets.compare_digest(asked, f"/{self._token}/".encode()):
            shown = self._board.shown
            self._head(HTTPStatus.OK, "text/html; charset=utf-8")
            self.wfile.write(document(self._board.title, shown.parts, live=True).encode())
        elif secrets.compare_digest(asked, f"/{self._token}/events".encode()):
            self._head(HTTPStatus.OK, "text/event-stream")
            with suppress(OSError):
                self._stream()
        else:
            self._head(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8")
            self.wfile.write(b"the address is the one that `mpca watch` printed\n")

    def _stream(self) -> None:
        sent: tuple[str, ...] = ()
        for state in self._board.states():
            if state is None:
                self.wfile.write(b": \n\n")
                continue
            changed = {n: part for n, part in enumerate(state.parts) if n >= len(sent) or part != sent[n]}
            message = {"count": len(state.parts), "parts": changed, "said": state.said, "over": state.over}
            self.wfile.write(f"data: {json.dumps(message)}\n\n".encode())
            sent = state.parts

    def _head(self, status: HTTPStatus, kind: str) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'",
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
        }.items():
            self.send_header(name, value)
        self.end_headers()

    def version_string(self) -> str:
        return "mpca"

    def log_message(self, *args: Any) -> None:
        """The address is nobody else's business."""
