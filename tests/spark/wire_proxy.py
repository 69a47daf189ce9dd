"""A proxy between block managers, on the wire of a network namespace: it damages a byte or keeps back what is sent.

The kernel redirects every new connection to the ports given (``iptables``, in this namespace) to the proxy, which goes on
to where it was meant to go. Bytes pass as they are, but that a byte in the middle of a large frame of Spark's is changed:
where TCP's checksum does not see it, as a network card or a switch with bad memory does it.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import threading
from collections import Counter
from collections.abc import Iterable, Mapping

import psutil

__all__ = ["FOREVER", "OUT", "TO", "WireProxy"]

#: Frames of this size carry parameters, and nothing else does.
LEAST_BYTES = 15 << 10
FOREVER = 1 << 30
#: What the owner of a port sends, also over connections that it opened itself, and what is sent to it.
OUT, TO = "out", "to"
_SO_ORIGINAL_DST = 80
#: The proxy's own connections come from here, and are not redirected again.
_OWN = "127.0.0.2"
_LENGTH = struct.Struct(">q")  # of a frame, these eight bytes included
_HEAD_BYTES = _LENGTH.size + 1  # and what kind of message it is
_STREAM = 10


class WireProxy:
    """In front of `ports`; a context manager that undoes nothing, since the namespace goes.

    Args:
        ports: that are listened at.
        owners: process ids of who listens at some of them, by port.
    """

    def __init__(self, ports: Iterable[int], owners: Mapping[int, int]) -> None:
        self._owners = dict(owners)
        self.done: Counter[tuple[int, str]] = Counter()  # bytes that were damaged, connections that were kept back
        self._armed: Counter[tuple[int, str]] = Counter()
        self._lock = threading.Lock()
        self._kept_back: set[tuple[int, int]] = set()  # the port of who opened a connection, and which it is to
        self._let_go = threading.Condition(self._lock)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        rule = ["-p", "tcp", "-m", "multiport", "--dports", ",".join(map(str, ports)), "!", "-s", _OWN]
        to = ["-j", "REDIRECT", "--to-ports", str(self._listener.getsockname()[1])]
        subprocess.run(["iptables", "-t", "nat", "-A", "OUTPUT", *rule, *to], check=True)
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, port: int, direction: str, times: int = 1) -> None:
        """The next so many large frames will be damaged; 0: no more."""
        with self._lock:
            self._armed[(port, direction)] = times

    def take(self, arms: Iterable[tuple[int, str]]) -> bool:
        """Whether to damage this frame, which is of these ports and directions."""
        with self._lock:
            armed = next((one for one in arms if self._armed[one]), None)
            if armed is None:
                return False
            self._armed[armed] -= 1
            self.done[armed] += 1
            return True

    def keep_back(self, opener: int, ports: Iterable[int]) -> None:
        """What the owner of `opener` sends to these ports over connections that it opened does not pass. No ports: it does."""
        with self._let_go:
            self._kept_back = {(opener, port) for port in ports}
            self._let_go.notify_all()

    def wait(self, ways: Iterable[tuple[int, int]]) -> None:
        """Until what goes these ways, from a port's owner to a port, is not kept back."""
        with self._let_go:
            for way in self._kept_back.intersection(ways):
                self.done[(way[0], "kept back")] += 1
            self._let_go.wait_for(lambda: self._kept_back.isdisjoint(ways))

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            port, address = struct.unpack_from("!2xH4s", near.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16))
            far = socket.create_connection((socket.inet_ntoa(address), port), source_address=(_OWN, 0))
            opened_by = [(one, OUT) for one in self._owners if near.getpeername()[1] in _local_ports(self._owners[one])]
            ways = [(one, port) for one, _ in opened_by]
            for source, sink, arms, going in (
                (near, far, [(port, TO), *opened_by], ways),
                (far, near, [(port, OUT)], []),
            ):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass, args=(source, sink, _Frames(self, arms), going), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, frames: _Frames, ways: list[tuple[int, int]]) -> None:
        try:
            while data := source.recv(1 << 18):
                self.wait(ways)
                sink.sendall(frames.passed(bytearray(data)))
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            sink.close()


def _local_ports(pid: int) -> set[int]:
    return {one.laddr.port for one in psutil.Process(pid).net_connections("tcp")}


class _Frames:
    """Where one direction of one connection is in its frames. A stream lies behind its frame, which ends with its length."""

    def __init__(self, proxy: WireProxy, arms: list[tuple[int, str]]) -> None:
        self._proxy, self._arms = proxy, arms
        self._head = b""
        self._left = 0  # bytes of this frame, or of this body, that have not come
        self._damage_at = -1  # ... and how many will not have, when a byte is to be changed
        self._streams = False  # whether this is the frame of a stream
        self._end = b""  # its last bytes so far

    def passed(self, data: bytearray) -> bytearray:
        at = 0
        while at < len(data):
            if not self._left:
                take = _HEAD_BYTES - len(self._head)
                self._head += data[at : at + take]
                at += take
                if len(self._head) == _HEAD_BYTES:
                    self._streams = self._head[-1] == _STREAM
                    self._begin(_LENGTH.unpack_from(self._head)[0] - _HEAD_BYTES)
                    self._head = b""
                continue
            there = min(self._left, len(data) - at)
            if self._left - there < self._damage_at <= self._left:
                data[at + self._left - self._damage_at] ^= 0x10
                self._damage_at = -1
            if self._streams:
                self._end = (self._end + data[at : at + there])[-_LENGTH.size :]
            self._left -= there
            at += there
            if self._streams and not self._left:
                self._streams = False
                self._begin(_LENGTH.unpack(self._end)[0])
        return data

    def _begin(self, length: int) -> None:
        self._left = length
        large = length >= LEAST_BYTES
        self._damage_at = length // 2 if large and self._proxy.take(self._arms) else -1
