"""`mpca bench exchange`: the exchange on real executors, beside plain TCP on the same links.

With ``--shape`` there are a Master, K Workers and the driver, each on a node of its own of a `Network`. First the executors
start, then the links are limited, then plain TCP is measured, then the engine: 30 KiB for the fixed cost, one blocking
exchange of the whole model (kappa), and three shards in phases (P/b). Agents are real agents that wait instead of computing.
Without ``--shape`` everything runs on loopback, which shows that it works and measures nothing.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import click

from mpca.cli.bench.figures import SHARDS, figures
from mpca.cli.bench.load import Sampler
from mpca.cli.bench.net.network import RATE, Network, check
from mpca.cli.bench.net.standalone import Standalone
from mpca.cli.bench.net.tcp import cycle_seconds, stream_rate
from mpca.cli.bench.show import show
from mpca.cli.options import SIZE, json_option
from mpca.errors import MpcaError

__all__ = ["command", "measure"]

PORTS_EVERY_S = 0.25
#: What the driver runs, in this order.
CASES = ("small", "overlapped", "blocking")


@click.command()
@click.option("--agents", default=4, show_default=True, help="K: agents, each on an executor and a node of its own.")
@click.option("--size", "size_bytes", type=SIZE, default="16MiB", show_default=True, help="M: bytes of the whole model.")
@click.option(
    "--shape",
    "rate",
    type=RATE,
    help="Rate of every link, such as 30mbit; needs root. Default: loopback, whose figures say nothing about a network.",
)
@click.option("--reducer", type=click.Choice(["ranges", "tree"]), default="ranges", show_default=True)
@click.option("--broadcast", type=click.Choice(["relay", "torrent"]), default="relay", show_default=True)
@click.option(
    "--phases",
    type=click.IntRange(1, 3),
    default=3,
    show_default=True,
    help="Phases of the run that overlaps; it has 3 shards.",
)
@click.option("--cycles", type=click.IntRange(min=6), default=15, show_default=True, help="Cycles of the overlapped run.")
@click.option("--encrypt", is_flag=True, help="With spark.network.crypto.enabled.")
@json_option
def command(
    agents: int,
    size_bytes: int,
    rate: str | None,
    reducer: str,
    broadcast: str,
    phases: int,
    cycles: int,
    encrypt: bool,
    as_json: bool,
) -> None:
    """The exchange on real executors behind shaped links, beside plain TCP on the same links."""
    if rate is not None:
        check()
    show(measure(agents, size_bytes, rate, reducer, broadcast, phases, cycles, encrypt=encrypt), as_json)


def measure(
    agents: int,
    size_bytes: int,
    rate: str | None,
    reducer: str = "ranges",
    broadcast: str = "relay",
    phases: int = 3,
    cycles: int = 15,
    exchanges: int = 4,
    encrypt: bool = False,
) -> dict[str, Any]:
    """The `exchange` case."""
    from mpca.cli.bench.run.exchange_driver import Spec

    said: dict[str, Any] = {
        "case": "exchange",
        "agents": agents,
        "size_bytes": size_bytes,
        "shape": rate,
        "reducer": reducer,
        "broadcast": broadcast,
        "phases": phases,
        "encrypt": encrypt,
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mpca-bench-")))
        spec = Spec(str(folder), agents, size_bytes, reducer, broadcast, phases, cycles, exchanges, encrypt=encrypt)
        if rate is None:
            raw = _Driver(stack, [], spec).play(None)
            links: dict[str, Any] = {}
            said |= {"counts": False, "note": "loopback, without --shape: shows that it runs, and measures nothing"}
        else:
            raw, links = _shaped(stack, folder, spec, rate)
            said |= {"counts": True, "note": ""}
    return said | figures(raw, links, size_bytes)


def _shaped(stack: ExitStack, folder: Path, spec: Any, rate: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the driver measures on nodes of their own, and what plain TCP and the switch measure of the links."""
    workers = [f"w{number}" for number in range(spec.agents)]
    _tell(f"starting a Master and {spec.agents} executors on nodes of their own")
    net = stack.enter_context(Network(["master", "driver", *workers]))
    memory = f"{(2 << 30) + 8 * spec.size_bytes >> 20}m"
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text(token_hex(32))
    daemons = stack.enter_context(Standalone(net, "master", workers, folder, memory, secret))
    spec = replace(spec, master=daemons.url, address=net.address("driver"), secret=str(secret))
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
    """Tell the waiting user what goes on, on stderr: stdout is for the result."""
    click.echo(text, err=True)


class _Driver:
    """The process of `exchange_driver`, here or on a node."""

    def __init__(self, stack: ExitStack, prefix: list[str], spec: Any) -> None:
        self._log = Path(spec.work_dir) / "driver-output.log"
        command = [*prefix, sys.executable, "-m", "mpca.cli.bench.run.exchange_driver", json.dumps(asdict(spec))]
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
        """Let the driver measure.

        Returns:
            Its answers by case.
        """
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
        said: dict[str, Any] = json.loads(line)
        return said

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
