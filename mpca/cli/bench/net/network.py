"""Machines of a bench: network namespaces behind one switch, with links of a chosen rate. Needs root, `ip` and `tc`.

::

    namespace of the switch:   bridge -- port0 -- port1 -- port2 ...        every port and every eth0 has a tbf
                                           |        |        |              once `shape` was called
    one namespace a node:                eth0     eth0     eth0             10.77.0.1, .2, .3, ...

The network and the outside cannot reach each other: the switch has no way out. Measurements showed what a bench needs and a
plain veth does not have: super-packets of at most 16 KiB (those of 64 KiB make steps of 17 ms at 30 Mbit/s), cubic as the
explicit congestion control of every route (the machine's default may be another), and a queue of 60 ms (with 400 ms a control
message waits behind bulk data, with 20 ms bulk data are sent again).

This file does not start what runs on the nodes; `Network.command` says how a command gets there.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from mpca.cli.options import Parsed
from mpca.errors import EnvironmentRefused
from mpca.units import parse_rate

__all__ = ["RATE", "Network", "check", "sweep"]

PREFIX = "mpca-bench-"
SUBNET = "10.77.0"
GSO_MAX_BYTES = 16384
BURST = "64kb"
LATENCY = "60ms"
CONGESTION = "cubic"
MOST_NODES = 250

_NETNS = Path("/run/netns")


def _checked_rate(text: str) -> str:
    parse_rate(text)
    return text


#: A rate as tc takes it.
RATE = Parsed("rate", _checked_rate)


def check() -> None:
    """Check that namespaces can be made here.

    Raises:
        EnvironmentRefused: they cannot; with one sentence.
    """
    if os.geteuid() != 0:
        raise EnvironmentRefused("shaped links need root: run the bench as root, or without --shape on loopback")
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise EnvironmentRefused(f"shaped links need `{tool}`: install iproute2, or run without --shape on loopback")


def sweep() -> list[str]:
    """Remove what killed benches left: namespaces whose maker is gone, with the processes in them."""
    left = []
    for path in sorted(_NETNS.glob(PREFIX + "*")):
        maker = path.name.removeprefix(PREFIX).partition("-")[0]
        if maker.isdigit() and not Path(f"/proc/{maker}").exists():
            left.append(path.name)
    _remove(left)
    return left


class Network:
    """Namespaces of one bench, made when entered and removed, with all that runs in them, when left."""

    def __init__(self, nodes: Sequence[str]) -> None:
        if not 1 <= len(nodes) <= MOST_NODES:
            raise ValueError(f"between 1 and {MOST_NODES} nodes, not {len(nodes)}")
        self.nodes = list(nodes)
        self.shaped: str | None = None
        # Others may have our process id too: a process of another container, alive or killed, or a network of this process.
        numbers = (f"{PREFIX}{os.getpid()}-{number}-" for number in itertools.count())
        self._own = next(own for own in numbers if not any(_NETNS.glob(own + "*")))
        self._switch = f"{self._own}switch"

    def __enter__(self) -> Network:
        check()
        sweep()
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ---- questions -------------------------------------------------------------------------------------------------

    def address(self, node: str) -> str:
        return f"{SUBNET}.{self.nodes.index(node) + 1}"

    def namespace(self, node: str) -> str:
        return f"{self._own}{node}"

    def command(self, node: str, command: Iterable[str]) -> list[str]:
        """The command line that runs `command` on `node`. `ip` becomes the command, so the pid is the command's."""
        return ["ip", "netns", "exec", self.namespace(node), *command]

    def congestion(self) -> str:
        """The congestion control that the kernel reports for a node's route; it is printed next to every figure."""
        routes = _run(["ip", "-n", self.namespace(self.nodes[0]), "route", "show"])
        found = re.search(r"congctl (\S+)", routes)
        return found[1] if found else "unknown"

    def ports(self) -> dict[str, tuple[int, int]]:
        """Bytes that every node has (received, sent) so far, counted at the switch."""
        text = _run(["ip", "netns", "exec", self._switch, "cat", "/proc/net/dev"])
        counted = {}
        for line in text.splitlines():
            name, colon, numbers = line.partition(":")
            if colon and name.strip().startswith("port"):
                fields = numbers.split()
                counted[self.nodes[int(name.strip()[4:])]] = (int(fields[8]), int(fields[0]))
        return counted

    # ---- links -----------------------------------------------------------------------------------------------------

    def shape(self, rate: str, but: Iterable[str] = ()) -> None:
        """Limit the links of all nodes except some to `rate`, in both directions."""
        parse_rate(rate)
        limit = ["root", "tbf", "rate", rate, "burst", BURST, "latency", LATENCY]
        for number, node in enumerate(self.nodes):
            if node not in set(but):
                _run(["tc", "-n", self.namespace(node), "qdisc", "replace", "dev", "eth0", *limit])
                _run(["tc", "-n", self._switch, "qdisc", "replace", "dev", f"port{number}", *limit])
        self.shaped = rate

    def _make(self) -> None:
        _run(["ip", "netns", "add", self._switch])
        _batch(self._switch, ["link set lo up", "link add bridge type bridge", "link set bridge up"])
        for number, node in enumerate(self.nodes):
            inside = self.namespace(node)
            _run(["ip", "netns", "add", inside])
            _batch(
                self._switch,
                [
                    f"link add port{number} type veth peer name eth0 netns {inside}",
                    f"link set port{number} gso_max_size {GSO_MAX_BYTES} master bridge up",
                ],
            )
            _batch(
                inside,
                [
                    "link set lo up",
                    f"link set eth0 gso_max_size {GSO_MAX_BYTES} up",
                    f"addr add {self.address(node)}/24 dev eth0",
                    f"route replace {SUBNET}.0/24 dev eth0 src {self.address(node)} congctl {CONGESTION}",
                ],
            )

    def close(self) -> None:
        """End what runs on the nodes and remove the nodes. It is safe to call this twice."""
        _remove([path.name for path in sorted(_NETNS.glob(self._own + "*"))])


def _batch(namespace: str, lines: list[str]) -> None:
    _run(["ip", "-n", namespace, "-batch", "-"], "\n".join(lines) + "\n")


def _run(command: list[str], text: str = "") -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise EnvironmentRefused(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _remove(namespaces: list[str]) -> None:
    """Remove a namespace, and first the processes in it, which would keep it alive."""
    deadline = time.monotonic() + 10.0
    for name in namespaces:
        while time.monotonic() < deadline:
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            if not pids:
                break
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.05)
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)
