"""What plain TCP does on the same links: B of one stream, and the traffic of one cycle without its dependencies.

That traffic is the ceiling of the exchange: sockets send every byte that a cycle must move, all at once, and wait for nothing.
The engine's time beyond the ceiling is the price of its order, its messages and its JVMs. The ceiling's time beyond the
arithmetic is the price of the links. A figure in units of b alone would mix both prices.
"""

from __future__ import annotations

import json
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mpca.algorithm.codecs import Codec
from mpca.cli.bench.net.network import Network
from mpca.errors import MpcaError
from mpca.units import parse_rate

__all__ = ["cycle_flows", "cycle_seconds", "measure", "stream_rate"]

PORT = 5001
NODE = Path(__file__).with_name("tcp_node.py")
#: A single stream takes about this long, so that slow start and the bucket's burst are below 2 % of it.
STREAM_S = 3.0

Flows = Mapping[tuple[str, str], int]  # (from, to) -> bytes


def cycle_flows(driver: str, agents: Sequence[str], shard_bytes: int, codec: str = "none") -> dict[tuple[str, str], int]:
    """Bytes of one cycle's reduction by ranges and broadcast by relay, one shard each, one agent an executor.

    Each agent sends its part of every other's range (m/K), its summed range to the driver (m/K), and relays its pieces
    of the broadcast, which it had from the driver (m/K), to the others: 1.875 m each way at K = 8, m at the driver. With
    a codec all but the summed ranges have its bytes, and those have the bytes of the codec of sums.
    """
    piece = summed = shard_bytes // len(agents)
    if codec != "none":
        chosen, elements = Codec(codec), shard_bytes // 4 // len(agents)
        piece, summed = chosen.size(elements, elements), chosen.of_sums.size(elements, elements)
    flows = {(a, b): 2 * piece for a in agents for b in agents if a != b}
    for agent in agents:
        flows[agent, driver], flows[driver, agent] = summed, piece
    return flows


def stream_rate(net: Network, sender: str, receiver: str) -> float:
    """B: MiB a second of one stream between two nodes of a shaped network."""
    if net.shaped is None:
        raise ValueError("the links have no rate yet")
    size = int(parse_rate(net.shaped) / 8 * STREAM_S)
    times = _play(net, {(sender, receiver): size})
    return size / (1 << 20) / (times[receiver]["ended"] - times[receiver]["began"])


def cycle_seconds(net: Network, driver: str, agents: Sequence[str], shard_bytes: int, codec: str = "none") -> float:
    """Seconds from the start signal until the last byte of one cycle has arrived."""
    times = _play(net, cycle_flows(driver, agents, shard_bytes, codec))
    return max(one["ended"] for one in times.values()) - times[""]["began"]


def measure(agents: int, size_bytes: int, rate: str, shards: int = 3, repeats: int = 3) -> dict[str, Any]:
    """The `tcp` case: both figures on a network of its own."""
    workers = [f"w{number}" for number in range(agents)]
    with Network(["driver", *workers]) as net:
        net.shape(rate)
        mib_s = stream_rate(net, "driver", workers[0])
        shard = size_bytes // shards
        cycles = [cycle_seconds(net, "driver", workers, shard) for _ in range(repeats)]
        congestion = net.congestion()
    b = size_bytes / (1 << 20) / mib_s
    return {
        "case": "tcp",
        "agents": agents,
        "size_bytes": size_bytes,
        "shape": rate,
        "congestion": congestion,
        "stream_mib_s": mib_s,
        "b_s": b,
        "cycle_s": cycles,
        "tcp_period_over_b": shards * statistics.median(cycles) / b,
    }


def _play(net: Network, flows: Flows) -> dict[str, dict[str, float]]:
    """Run the flows.

    Returns:
        When each node had its first and its last byte (monotonic seconds), and under "" when all were told to start.
    """
    names = sorted({name for pair in flows for name in pair})
    nodes = {}
    try:
        for name in names:
            order = {
                "name": name,
                "listen": [net.address(name), PORT],
                "receive": {a: size for (a, b), size in flows.items() if b == name},
                "send": {b: [net.address(b), PORT, size] for (a, b), size in flows.items() if a == name},
            }
            command = net.command(name, [sys.executable, "-I", "-S", str(NODE), json.dumps(order)])
            nodes[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        seconds = 60.0 + 8 * sum(flows.values()) / parse_rate(net.shaped or "1gbit")
        _step(nodes, "listening", "connect", seconds)
        _step(nodes, "connected", "", seconds)
        began = time.monotonic()
        for node in nodes.values():
            _tell(node, "go")
        times = {name: json.loads(_hear(name, node, seconds)) for name, node in nodes.items()}
    finally:
        for node in nodes.values():
            node.kill()
            node.communicate()
    wrong = [one["error"] for one in times.values() if one["error"]]
    if wrong:
        raise MpcaError(f"plain TCP pattern failed: {'; '.join(wrong)}")
    times[""] = {"began": began, "ended": began}
    return times


def _step(nodes: Mapping[str, subprocess.Popen[str]], hear: str, tell: str, seconds: float) -> None:
    """Wait for the word of every node, then tell all of them the next one."""
    for name, node in nodes.items():
        word = _hear(name, node, seconds)
        if word != hear:
            raise MpcaError(f"plain TCP pattern: node {name} said {word!r} instead of {hear!r}")
    for node in nodes.values():
        if tell:
            _tell(node, tell)


def _tell(node: subprocess.Popen[str], word: str) -> None:
    assert node.stdin is not None
    node.stdin.write(word + "\n")


def _hear(name: str, node: subprocess.Popen[str], seconds: float) -> str:
    assert node.stdout is not None
    if not select.select([node.stdout], [], [], seconds)[0]:
        raise MpcaError(f"plain TCP pattern: node {name} said nothing for {seconds:.0f} s")
    return node.stdout.readline().strip()
