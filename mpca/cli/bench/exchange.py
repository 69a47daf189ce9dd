"""`mpca bench exchange`: the exchange on real executors, beside plain TCP on the same links.

With ``--shape`` there are a Master, K Workers and the driver, each on a node of its own of a `Network`; the executors are
started first, then the links are limited, then plain TCP is measured, then the engine: 30 KiB for the fixed cost, one
blocking exchange of the whole model (kappa), and three shards in phases (P/b). Agents are production ones that wait
instead of computing. Without ``--shape`` the same runs on loopback, which shows that it works and measures nothing.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from mpca.cli.bench.load import LEAST_IDLE, Sampler, Ticks, cpu_idle_share, invalid_reason
from mpca.cli.bench.show import json_option, show
from mpca.errors import ConfigError, MpcaError
from mpca.units import parse_size

__all__ = ["KEYS", "command", "figures", "measure"]

#: Cycles before the first mark of a figure: the pipeline fills.
SKIP_SMALL, SKIP_BLOCKING, SKIP_OVERLAPPED = 30, 1, 3
PORTS_EVERY_S = 0.25
#: What the driver runs, in this order.
CASES = ("small", "blocking", "overlapped")
#: What one call tells, whatever the options; null where loopback has no answer.
KEYS = (
    "kappa",
    "period_over_b",
    "fixed_s",
    "driver_in_over_m",
    "driver_out_over_m",
    "period_over_tcp",
    "driver_rss_over_m",
)


@click.command()
@click.option("--agents", default=4, show_default=True, help="K: agents, each on an executor and a node of its own.")
@click.option("--size", default="16MiB", show_default=True, help="M: bytes of the whole model.")
@click.option(
    "--shape", "rate", help="Rate of every link, such as 30mbit (root). Without it: loopback, which counts for nothing."
)
@click.option("--reducer", type=click.Choice(["ranges", "tree"]), default="ranges", show_default=True)
@click.option("--broadcast", type=click.Choice(["relay", "torrent"]), default="relay", show_default=True)
@click.option(
    "--phases", type=click.IntRange(1, 3), default=3, show_default=True, help="Of the overlapped run; it has three shards."
)
@click.option("--cycles", type=click.IntRange(min=6), default=15, show_default=True, help="Cycles of the overlapped run.")
@json_option
def command(
    agents: int, size: str, rate: str | None, reducer: str, broadcast: str, phases: int, cycles: int, as_json: bool
) -> None:
    """The exchange on real executors behind shaped links, beside plain TCP on the same links."""
    try:
        size_bytes = parse_size(size)
    except ValueError as error:
        raise ConfigError(f"--size: {error}") from None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nodes and processes are removed then too
    show(measure(agents, size_bytes, rate, reducer, broadcast, phases, cycles), as_json)


def measure(
    agents: int,
    size_bytes: int,
    rate: str | None,
    reducer: str = "ranges",
    broadcast: str = "relay",
    phases: int = 3,
    cycles: int = 15,
    exchanges: int = 4,
) -> dict[str, Any]:
    """The `exchange` case."""
    from mpca.cli.bench.exchange_driver import Spec

    said: dict[str, Any] = {
        "case": "exchange",
        "agents": agents,
        "size_bytes": size_bytes,
        "shape": rate,
        "reducer": reducer,
        "broadcast": broadcast,
        "phases": phases,
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mpca-bench-")))
        spec = Spec(str(folder), agents, size_bytes, reducer, broadcast, phases, cycles, exchanges)
        if rate is None:
            raw = _Driver(stack, [], spec).play(None)
            links: dict[str, Any] = {}
            said |= {"counts": False, "note": "loopback, without --shape: shows that it runs, and measures nothing"}
        else:
            raw, links = _shaped(stack, folder, spec, rate)
            said |= {"counts": True, "note": ""}
    return said | figures(raw, links, size_bytes)


def _shaped(stack: ExitStack, folder: Path, spec: Any, rate: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the driver says on nodes of its own, and what plain TCP and the switch say of the links."""
    from dataclasses import replace

    from mpca.cli.bench.exchange_driver import SHARDS
    from mpca.cli.bench.net import Network
    from mpca.cli.bench.standalone import Standalone
    from mpca.cli.bench.tcp import cycle_seconds, stream_rate

    workers = [f"w{number}" for number in range(spec.agents)]
    _tell(f"starting a Master and {spec.agents} executors on nodes of their own")
    net = stack.enter_context(Network(["master", "driver", *workers]))
    memory = f"{(2 << 30) + 8 * spec.size_bytes >> 20}m"
    daemons = stack.enter_context(Standalone(net, "master", workers, folder, memory))
    spec = replace(spec, master=daemons.url, address=net.address("driver"))
    driver = _Driver(stack, net.command("driver", []), spec)
    driver.wait_ready()
    net.shape(rate, but=["master"])
    _tell(f"links are limited to {rate}; plain TCP first")
    mib_s = stream_rate(net, "driver", workers[0])
    tcp = [cycle_seconds(net, "driver", workers, spec.size_bytes // SHARDS) for _ in range(3)]
    b_s = spec.size_bytes / (1 << 20) / mib_s
    try:
        with Sampler(net.ports, PORTS_EVERY_S) as ports:
            raw = driver.play(b_s)
    except MpcaError as error:
        raise MpcaError(f"{error}\n{daemons.executor_log()}") from None
    return raw, {
        "b_s": b_s,
        "stream_mib_s": mib_s,
        "congestion": net.congestion(),
        "tcp_cycle_s": tcp,
        "tcp_period_over_b": SHARDS * statistics.median(tcp) / b_s,
        "ports": ports.samples,
        "workers": workers,
    }


def _tell(text: str) -> None:
    """What goes on, for whoever waits; stdout is for the result."""
    click.echo(text, err=True)


class _Driver:
    """The process of `exchange_driver`, here or on a node."""

    def __init__(self, stack: ExitStack, prefix: list[str], spec: Any) -> None:
        self._log = Path(spec.work_dir) / "driver-output.log"
        command = [*prefix, sys.executable, "-m", "mpca.cli.bench.exchange_driver", json.dumps(asdict(spec))]
        sink = stack.enter_context(self._log.open("wb"))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, text=True, bufsize=1
        )
        stack.callback(self._end)
        self._ready = False

    def wait_ready(self) -> None:
        if not self._ready and "ready" not in self._hear():
            raise MpcaError("the bench's driver did not say that it is ready")
        self._ready = True

    def play(self, b_s: float | None) -> dict[str, Any]:
        """Let it measure; what it said of every case, by name."""
        self.wait_ready()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"b_s": b_s}) + "\n")
        cases: dict[str, Any] = {}
        while len(cases) < len(CASES):
            _tell(f"running {CASES[len(cases)]}")
            one = self._hear()
            cases[one["case"]] = one
        return cases

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-40:])
            raise MpcaError(f"the bench's driver ended with exit code {self._process.wait()}:\n{tail}")
        return json.loads(line)  # type: ignore[no-any-return]

    def _end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def figures(raw: dict[str, Any], links: dict[str, Any], size_bytes: int) -> dict[str, Any]:
    """The keys of design section 8 from what the driver, plain TCP and the switch said.

    Every figure is a difference between two marks of one run. b = M/B, with B of one TCP stream on the same links; bytes
    are all that the driver's interface counted, messages of control and headers included.
    """
    small, blocking, overlapped = (
        raw[name]["marks"][skip:]
        for name, skip in (("small", SKIP_SMALL), ("blocking", SKIP_BLOCKING), ("overlapped", SKIP_OVERLAPPED))
    )
    shards = 3
    small_s, blocking_s, cycle_s = _durations(small), _durations(blocking), _durations(overlapped)
    period_s = shards * statistics.fmean(cycle_s)
    refreshes = len(cycle_s) / shards
    idle = {"blocking": _idle(blocking), "overlapped": _idle(overlapped)}
    reason = invalid_reason(min(idle.values()))
    b_s = links.get("b_s")
    moved = {way: overlapped[-1][way] - overlapped[0][way] for way in ("received", "sent")}
    return {
        "valid": not reason and b_s is not None,
        "reason": reason if b_s is not None else "loopback",
        "kappa": b_s and statistics.median(blocking_s) / b_s,
        "period_over_b": b_s and period_s / b_s,
        "fixed_s": statistics.median(small_s),
        "driver_in_over_m": b_s and moved["received"] / refreshes / size_bytes,
        "driver_out_over_m": b_s and moved["sent"] / refreshes / size_bytes,
        "period_over_tcp": b_s and period_s / b_s / links["tcp_period_over_b"],
        "driver_rss_over_m": (max(raw["blocking"]["rss_peak"], raw["overlapped"]["rss_peak"]) - raw["small"]["rss_end"])
        / size_bytes,
        "tcp_period_over_b": links.get("tcp_period_over_b"),
        "b_s": b_s,
        "stream_mib_s": links.get("stream_mib_s"),
        "congestion": links.get("congestion"),
        "blocking_s": blocking_s,
        "cycle_s": cycle_s,
        "small_cycle_s": [min(small_s), statistics.median(small_s), max(small_s)],
        "tcp_cycle_s": links.get("tcp_cycle_s"),
        "overlap_share": statistics.median(overlap_share(mark["fields"]["stages"]) for mark in overlapped[1:]),
        "stages_s": _stages(overlapped[1:]),
        "cpu_idle_share": idle,
        "links_busy": _busy(links, overlapped) if links else None,
        "least_idle": LEAST_IDLE,
        "cores": os.cpu_count(),
    }


def overlap_share(stages: dict[str, dict[str, float]]) -> float:
    """How much of the shorter of reduce and broadcast of one cycle lies inside the other, in [0, 1]."""
    reduce, broadcast = stages.get("reduce"), stages.get("broadcast")
    if reduce is None or broadcast is None:
        return 0.0
    common = min(reduce["end"], broadcast["end"]) - max(reduce["start"], broadcast["start"])
    shorter = min(one["end"] - one["start"] for one in (reduce, broadcast))
    return max(0.0, common) / shorter if shorter > 0 else 0.0


def _durations(marks: list[dict[str, Any]]) -> list[float]:
    if len(marks) < 2:
        raise MpcaError("too few cycles ended for a figure")
    return [b["at"] - a["at"] for a, b in pairwise(marks)]


def _idle(marks: list[dict[str, Any]]) -> float:
    return cpu_idle_share(Ticks(**marks[0]["ticks"]), Ticks(**marks[-1]["ticks"]))


def _stages(marks: list[dict[str, Any]]) -> dict[str, float]:
    """Median seconds of each stage: which of them a cycle waits for."""
    seconds: dict[str, list[float]] = {}
    for mark in marks:
        for name, stage in mark["fields"]["stages"].items():
            seconds.setdefault(name, []).append(stage["end"] - stage["start"])
    return {name: statistics.median(values) for name, values in seconds.items()}


def _busy(links: dict[str, Any], marks: list[dict[str, Any]]) -> dict[str, float]:
    """Share of B that links carried on average while the overlapped run was steady, counted at the switch."""
    inside = [one for one in links["ports"] if marks[0]["at"] <= one[0] <= marks[-1]["at"]]
    if len(inside) < 2:
        return {}
    (t0, first), (t1, last) = inside[0], inside[-1]
    room = (t1 - t0) * links["stream_mib_s"] * (1 << 20)
    workers = links["workers"]
    return {
        "driver_in": (last["driver"][0] - first["driver"][0]) / room,
        "driver_out": (last["driver"][1] - first["driver"][1]) / room,
        "executors_in": statistics.fmean((last[one][0] - first[one][0]) / room for one in workers),
        "executors_out": statistics.fmean((last[one][1] - first[one][1]) / room for one in workers),
    }
