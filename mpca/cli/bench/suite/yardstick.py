"""A fixed piece of work whose seconds say how fast the machine is just now: computing, memory and loopback.

It is short enough to be measured before each case, and uses nothing of mpca, so a change of mpca does not change it.
"""

from __future__ import annotations

import hashlib
import math
import socket
import statistics
import threading
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["measure", "seconds"]

_TRIES = 3
_HASHED_BYTES, _COPIED_BYTES, _SENT_BYTES, _PIECE = 64 << 20, 128 << 20, 128 << 20, 1 << 20
_COPIES = 6


def measure() -> dict[str, float]:
    """Seconds of each part, the median of a few tries."""
    source, target = np.ones(_COPIED_BYTES, np.uint8), np.zeros(_COPIED_BYTES, np.uint8)
    target[:] = source  # its pages are there before the clock starts: new ones cost what the kernel wants
    parts = {"cpu": _compute, "memory": lambda: _copy(source, target), "loopback": _send}
    return {name: statistics.median(_timed(work) for _ in range(_TRIES)) for name, work in parts.items()}


def seconds(parts: dict[str, float]) -> float:
    """One figure of all parts: their geometric mean, so that each counts equally.

    Example:
        >>> seconds({"cpu": 0.1, "memory": 0.2, "loopback": 0.4})
        0.2
    """
    return round(math.exp(statistics.fmean(math.log(one) for one in parts.values())), 9)


def _timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _compute() -> None:
    """Half of it in C, half in the interpreter."""
    digest = hashlib.sha256()
    piece = bytes(_PIECE)
    for _ in range(_HASHED_BYTES // _PIECE):
        digest.update(piece)
    total = 0
    for one in range(1_000_000):
        total += one ^ 5


def _copy(source: npt.NDArray[np.uint8], target: npt.NDArray[np.uint8]) -> None:
    """Larger than caches."""
    for _ in range(_COPIES):
        target[:] = source


def _send() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sender:
        receiver, _ = server.accept()
        with receiver:
            thread = threading.Thread(target=_drain, args=(receiver,), name="bench-yardstick")
            thread.start()
            piece = bytes(_PIECE)
            for _ in range(_SENT_BYTES // _PIECE):
                sender.sendall(piece)
            sender.shutdown(socket.SHUT_WR)
            thread.join()


def _drain(receiver: socket.socket) -> None:
    buffer = bytearray(_PIECE)
    while receiver.recv_into(buffer):
        pass
