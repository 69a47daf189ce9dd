"""One node of a plain-TCP pattern: run as a script on its machine, with the standard library alone, so it starts at once.

Its argument is JSON: ``{"listen": [address, port], "receive": {peer: bytes}, "send": {peer: [address, port, bytes]}}``.
Words on stdin and stdout keep the nodes in step::

    node   -> "listening"                        bench  -> "connect"
    node   -> "connected"                        bench  -> "go"
    node   -> {"began": s, "ended": s}           (monotonic seconds, which all processes of one machine share)

Each stream has a thread. The first line of a received stream names its sender.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from typing import Any

__all__ = ["Receiver", "main", "say", "send"]

PIECE = bytes(256 << 10)


def send(connection: socket.socket, size: int) -> None:
    for start in range(0, size, len(PIECE)):
        connection.sendall(PIECE[: min(len(PIECE), size - start)])
    connection.shutdown(socket.SHUT_WR)


class Receiver(threading.Thread):
    """Reads one stream to its end, and keeps the times of its first and its last byte."""

    def __init__(self, connection: socket.socket, expected: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self._expected = expected
        self.began = self.ended = 0.0
        self.error = ""

    def run(self) -> None:
        reader = self._connection.makefile("rb")
        peer = reader.readline().decode().strip()
        left, buffer = self._expected[peer], bytearray(len(PIECE))
        while left:
            count = reader.readinto1(buffer)
            if not count:
                self.error = f"stream of {peer} ended {left} bytes early"
                break
            self.began = self.began or time.monotonic()
            left -= count
        self.ended = time.monotonic()


def main(order: dict[str, Any]) -> None:
    name, expected = order["name"], order["receive"]
    server = socket.create_server(tuple(order["listen"]), backlog=64)
    say("listening")
    sys.stdin.readline()
    outgoing = []
    for address, port, size in order["send"].values():
        connection = socket.create_connection((address, port), timeout=30)
        connection.settimeout(None)
        connection.sendall(f"{name}\n".encode())
        outgoing.append((connection, size))
    receivers = [Receiver(server.accept()[0], expected) for _ in expected]
    for receiver in receivers:
        receiver.start()
    say("connected")
    sys.stdin.readline()
    senders = [threading.Thread(target=send, args=one, daemon=True) for one in outgoing]
    for thread in senders:
        thread.start()
    for thread in [*senders, *receivers]:
        thread.join()
    errors = [one.error for one in receivers if one.error]
    say(
        json.dumps(
            {
                "began": min((one.began for one in receivers), default=0.0),
                "ended": max((one.ended for one in receivers), default=0.0),
                "error": "; ".join(errors),
            }
        )
    )


def say(word: str) -> None:
    print(word, flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
