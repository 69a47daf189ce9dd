"""`mpca watch`: what it serves to whom, what it sends when, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from mpca.report.follow import Follower
from mpca.report.watch import Board, follow_run, served
from mpca.storage.local import LocalStore
from tests.report.synthetic import synthetic_records, write_run

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]


def get(address: str, path: str | None = None) -> http.client.HTTPResponse:
    url = urlsplit(address)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=20)
    connection.request("GET", url.path if path is None else path)
    response = connection.getresponse()
    connection.close()  # the response keeps the socket until it is read
    return response


def messages(address: str) -> Iterator[dict[str, Any]]:
    with closing(get(address + "events")) as stream:
        for line in stream:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def test_only_who_knows_the_word_is_answered_and_only_on_this_machine() -> None:
    board = Board("<run>")
    board.show(("<div>one</div>",), "said", over=True)
    with served(board) as address:
        with closing(get(address)) as page:
            text = page.read().decode()
            assert "<title>mpca: &lt;run&gt;</title>" in text
            assert "<div>one</div>" in text
            assert page.headers["Cache-Control"] == "no-store"
            assert page.headers["Referrer-Policy"] == "no-referrer"
            assert page.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'sha256-")
            assert page.headers["Server"] == "mpca", "no versions"
        token = urlsplit(address).path
        assert len(token) >= 32
        for other in ("/", "/events", token[:-2] + "/", token + "?", token.lower() + "events", "/\xff"):
            with closing(get(address, other.encode("latin-1").decode("latin-1") if other.isascii() else "/%ff")) as refused:
                assert refused.status == 404, other
                assert b"run" not in refused.read()
        host, port = urlsplit(address).netloc.split(":")
        assert host == "127.0.0.1"
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", int(port)), 5)
    with served(Board("")) as again:
        assert urlsplit(again).path != token


def test_a_stream_sends_what_has_changed_and_ends_with_the_run() -> None:
    board = Board("run")
    board.show(("a", "b"), "one")
    with served(board) as address:
        stream = messages(address)
        assert next(stream) == {"count": 2, "parts": {"0": "a", "1": "b"}, "said": "one", "over": False}
        board.show(("a", "b"), "one")  # nothing new
        board.show(("a", "c", "<d>"), "two")
        assert next(stream) == {"count": 3, "parts": {"1": "c", "2": "<d>"}, "said": "two", "over": False}
        board.show(("a",), "three", over=True)
        assert list(stream) == [{"count": 1, "parts": {}, "said": "three", "over": True}]


def test_a_browser_that_went_away_holds_nothing_up() -> None:
    board = Board("run")
    board.show(("a",), "one")
    with served(board) as address:
        url = urlsplit(address)
        with socket.create_connection((url.hostname or "", url.port or 0)) as one:
            one.sendall(f"GET {url.path}events HTTP/1.0\r\n\r\n".encode())
            assert one.recv(1)
        board.show(("b",), "two", over=True)


def test_a_run_is_followed_from_before_its_first_record_to_its_end(tmp_path: Path) -> None:
    board = Board("run")
    follower = Follower(LocalStore(tmp_path / "run"))
    ended: list[str] = []
    thread = threading.Thread(target=lambda: ended.append(follow_run(follower, board, "HERE", 0.02)))
    thread.start()
    states = board.states()
    seen = [next(states)]
    assert seen[0] is not None
    assert seen[0].said == "waiting: there is no records.jsonl in HERE yet"
    records = synthetic_records()
    write_run(tmp_path / "run", records[:40])
    shown = next(one for one in states if one is not None and one.parts)
    assert '<span class="badge ">running</span>' in shown.parts[0]
    assert "<svg" not in "".join(shown.parts)
    assert shown.said == "follows HERE"
    with (tmp_path / "run" / "records.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(one) + "\n" for one in records[40:])
    last = next(one for one in states if one is not None and one.over)
    thread.join()
    assert last.said == "the run has ended; its report: HERE/report.html"
    assert '<span class="badge good">reached</span>' in last.parts[0]
    assert ended == ["reached: error 0.0250 <= target 0.0250"]


@contextmanager
def command(*args: str) -> Iterator[subprocess.Popen[str]]:
    """``mpca watch``; it leads a session, as what a terminal starts does."""
    line = [sys.executable, "-m", "mpca.cli", "watch", *args]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(line, cwd=ROOT, env=environment, text=True, start_new_session=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_and_a_terminal_that_is_gone_end_the_command_with_0(tmp_path: Path, number: signal.Signals) -> None:
    with command(str(tmp_path / "run")) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        stream = messages(address)
        assert next(stream)["said"] == f"waiting: there is no records.jsonl in {tmp_path}/run yet"
        process.send_signal(number)
        assert next(one for one in stream if one["over"])["said"] == "`mpca watch` has ended"
        assert process.stdout.readline() == f"follows {tmp_path}/run; Ctrl-C ends this command, and not the run\n"
        assert process.wait(timeout=30) == 0
        assert process.stdout.read() == "ended; the run does not notice\n"
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_the_command_ends_with_the_run_whether_it_went_well_or_not(tmp_path: Path) -> None:
    records = [*synthetic_records()[:-1], {"kind": "end", "t": 26.0, "status": "failed", "reason": "agent 1 died\nmore"}]
    run_dir = write_run(tmp_path / "run", records)
    with command(str(run_dir)) as process:
        said, wrong = process.communicate(timeout=60)
        assert said.splitlines()[2:] == ["failed: agent 1 died", f"report {run_dir}/report.html"]
        assert (process.returncode, wrong) == (0, "")


def test_a_port_that_is_taken_and_records_that_are_none_are_refused_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with command(str(tmp_path), "--port", port) as process:
            said = process.communicate(timeout=60)[1]
            assert process.returncode == 2
            assert said.splitlines() == [
                f"mpca: refused: --port = {port}: Address already in use; leave it out for a free one"
            ], said
    write_run(tmp_path / "run", [{"kind": "new", "t": 0}])
    with command(str(tmp_path / "run")) as process:
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 2
        assert "damaged run folder: not a record: " in said
