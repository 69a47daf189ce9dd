"""Another user of this machine: ``python -m tests.spark.intruder``, with what there is to be tried as JSON on stdin.

Begins as root, which alone may read this file in somebody's checkout, and becomes uid 65534 for good before anything is
tried. Prints one JSON object: by kind of attempt what it got, which should be nothing.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401 - sockets load it late, when it cannot be read any more
import http.client
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

NOBODY = 65534
PAGES = ("/", "/json/", "/app/?appId={app}", "/logPage/?appId={app}&executorId=0&logType=stderr")
KILL = "/app/kill/", "id={app}&terminate=true"
#: py4j: a call without its token, and with a wrong one before it.
CALL = b"c\nz:java.lang.System\nexit\ni1\ne\n", b"A\nguess\ne\nr\nu\nSystem\nrj\ne\n"
_QUIET_S = 1.0


def drop() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    assert os.getresuid() == (NOBODY, NOBODY, NOBODY)


def pages(ports: list[int], app: str) -> Iterator[list]:
    """What web pages show, and what a kill is answered."""
    for port in ports:
        for path in PAGES:
            yield from answer(port, "GET", path.format(app=app), None)
        yield from answer(port, "POST", KILL[0], KILL[1].format(app=app))


def answer(port: int, method: str, path: str, body: str | None) -> Iterator[list]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, body, {"Content-Type": "application/x-www-form-urlencoded"})
        reply = connection.getresponse()
        if reply.status != 403:
            yield [port, method, path, reply.status]
    except (OSError, http.client.HTTPException):
        pass  # no web server
    finally:
        connection.close()


def left_at_once(ports: list[int], app: str) -> None:
    """A kill by a connection that is closed before anybody can look whose it is."""
    body = KILL[1].format(app=app)
    for port in ports:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as one:
            one.sendall(
                f"POST {KILL[0]} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
                f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
            )


def calls(port: int) -> Iterator[list]:
    """What py4j answers with "yes"."""
    for words in CALL:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as one:
            one.sendall(words)
            one.settimeout(_QUIET_S)
            said = b""
            with contextlib.suppress(OSError):
                while got := one.recv(4096):
                    said += got
            if b"!y" in said:
                yield [port, said.decode(errors="replace")]


def processes(pids: list[int]) -> Iterator[list]:
    """What the kernel shows of processes, and whether they take a signal."""
    for pid in pids:
        for name in ("environ", "mem", "maps", "io"):
            with contextlib.suppress(OSError):
                with Path(f"/proc/{pid}/{name}").open("rb") as file:
                    seen = file.read(1)
                if seen:  # a process that has ended and was not waited for has none
                    yield [pid, name]
        for name in ("cwd", "root", "exe"):
            with contextlib.suppress(OSError):
                yield [pid, name, os.readlink(f"/proc/{pid}/{name}")]
        with contextlib.suppress(OSError):
            yield [pid, "fd", os.listdir(f"/proc/{pid}/fd")]
        with contextlib.suppress(PermissionError):
            os.kill(pid, 0)
            yield [pid, "takes signals"]


def words(secrets: list[str]) -> Iterator[list]:
    """Secrets in what everybody may read: arguments of processes, and files in shared folders."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            text = line.read_bytes().decode(errors="replace")
            yield from ([str(line), text] for one in secrets if one in text)
    for folder in ("/tmp", "/dev/shm", "/var/tmp"):
        for where, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(OSError):
                    path = Path(where, name)
                    if path.is_file() and path.stat().st_size < 1 << 20:
                        text = path.read_bytes().decode(errors="replace")
                        yield from ([str(path)] for one in secrets if one in text)


def main() -> None:
    given = json.load(sys.stdin)
    drop()
    found = {
        "pages": list(pages(given["ports"], given["app"])),
        "calls": list(calls(given["py4j"])),
        "processes": list(processes(given["pids"])),
        "words": list(words(given["secrets"])),
    }
    left_at_once(given["ports"], given["app"])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
