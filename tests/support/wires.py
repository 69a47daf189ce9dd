"""Nodes whose switch is a thread of this process, so that any link can be damaged by the packet: late, lost, out of order,
one way only. Needs root, `ip` and ``/dev/net/tun``; of the kernel neither netem nor packet filters.

Every node has a TUN device as its eth0. What it sends is read here as one IP packet, and is written to the node that it is
addressed to, when it is due. Each kind of damage is counted when it is done to a packet: a test asserts that it was.

The nodes themselves (namespaces, what runs in them, what a killed test leaves) are those of the bench's `Network`.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import selectors
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from mpca.cli.bench.net.network import Network

__all__ = ["Damage", "DamagedNetwork"]

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_PACKET_BYTES = 65536


@dataclass(frozen=True)
class Damage:
    """What happens to packets between two nodes; nothing, unless it is said."""

    delay_s: float = 0.0
    loss: float = 0.0  # share of the packets
    jump: float = 0.0  # share of the packets that are not delayed, and so overtake others
    twice: float = 0.0  # share of the packets that arrive twice
    cut: frozenset[tuple[str, str]] = field(default_factory=frozenset)  # (from, to) of which nothing arrives
    among: frozenset[str] = frozenset()  # the nodes between which all but `cut` happens; empty: all


class DamagedNetwork(Network):
    """A `Network` with another switch; `damage` may be assigned at any time."""

    def __init__(self, nodes: Sequence[str], seed: int = 1) -> None:
        super().__init__(nodes)
        self.damage = Damage()
        self.done: Counter[str] = Counter()  # by kind of damage, and "passed"
        self._random = random.Random(seed)
        self._fds: dict[int, str] = {}  # TUN device -> node
        self._over = threading.Event()
        self._switching = threading.Thread(target=self._switch_packets, name="tests-wires", daemon=True)

    def _make(self) -> None:
        for number, node in enumerate(self.nodes):
            name = f"mpca{os.getpid() % 100000}n{number}"  # until it is moved
            fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self._fds[fd] = node
            fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
            inside = self.namespace(node)
            _ip(["ip", "netns", "add", inside])
            _ip(["ip", "link", "set", name, "netns", inside, "name", "eth0"])
            _ip(
                ["ip", "-n", inside, "-batch", "-"],
                "link set lo up",
                f"addr add {self.address(node)}/24 dev eth0",
                "link set eth0 txqueuelen 5000 up",
            )
        self._switching.start()

    def close(self) -> None:
        self._over.set()
        if self._switching.is_alive():
            self._switching.join()
        super().close()
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()

    # ---- the switch ----

    def _switch_packets(self) -> None:
        devices = {socket.inet_aton(self.address(node)): (fd, node) for fd, node in self._fds.items()}
        waiting: list[tuple[float, int, int, bytes]] = []  # (due, number, device, packet)
        number = 0
        with selectors.DefaultSelector() as selector:
            for fd, node in self._fds.items():
                selector.register(fd, selectors.EVENT_READ, node)
            while not self._over.is_set():
                pause = min(0.1, max(0.0, waiting[0][0] - time.monotonic())) if waiting else 0.1
                for key, _ in selector.select(pause):
                    for packet in _read(key.fd):
                        to = devices.get(packet[16:20])
                        if packet[0] >> 4 != 4 or to is None:  # IPv6's looking for neighbours
                            continue
                        for due in self._due(key.data, to[1]):
                            number += 1
                            heapq.heappush(waiting, (due, number, to[0], packet))
                now = time.monotonic()
                while waiting and waiting[0][0] <= now:
                    _, _, fd, packet = heapq.heappop(waiting)
                    with suppress(OSError):  # the node is on its way out
                        os.write(fd, packet)
                    self.done["passed"] += 1

    def _due(self, source: str, target: str) -> Iterable[float]:
        """When a packet of this link arrives: once, never, or twice."""
        damage, now, chance = self.damage, time.monotonic(), self._random.random
        if (source, target) in damage.cut:
            self.done["cut"] += 1
            return ()
        if damage.among and not {source, target} <= damage.among:
            return (now,)
        if chance() < damage.loss:
            self.done["lost"] += 1
            return ()
        due = now
        if damage.delay_s and chance() < damage.jump:
            self.done["jumped"] += 1
        elif damage.delay_s:
            self.done["delayed"] += 1
            due += damage.delay_s
        if chance() < damage.twice:
            self.done["twice"] += 1
            return (due, due)
        return (due,)


def _read(fd: int, most: int = 64) -> Iterable[bytes]:
    for _ in range(most):
        try:
            yield os.read(fd, _PACKET_BYTES)
        except OSError:  # nothing more, or the device is not up yet
            return


def _ip(command: list[str], *lines: str) -> None:
    subprocess.run(command, input="\n".join(lines), check=True, capture_output=True, text=True, timeout=30)
