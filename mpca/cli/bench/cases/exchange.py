"""`mpca bench exchange`: the exchange on real executors, beside plain TCP on the same links.

With ``--shape`` there are a Master, K Workers and the driver, each on a node of its own of a `Network`. First the executors
start, then the links are limited, then plain TCP is measured, then the engine: 30 KiB for the fixed cost, until the JVMs have
compiled what a run repeats, three shards in phases (P/b), one blocking exchange of the whole model (kappa), and at last jobs of
Spark's that do nothing. Agents are real agents that wait instead of computing. Without ``--shape`` everything runs on loopback,
which shows that it works, and measures CPU seconds per GB alone.
"""

from __future__ import annotations

import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from mpca.cli.bench.figures import LEAST_CYCLES, SHARDS, figures
from mpca.cli.bench.load import Sampler
from mpca.cli.bench.net.network import RATE, check
from mpca.cli.bench.net.node_process import NodeProcess
from mpca.cli.bench.net.standalone import Nodes
from mpca.cli.bench.net.tcp import cycle_seconds, stream_rate
from mpca.cli.bench.show import show
from mpca.cli.options import SIZE, json_option
from mpca.errors import MpcaError

__all__ = ["SPARKS_CIPHER", "command", "measure"]

SPARKS_CIPHER = "AES/CTR/NoPadding"
PORTS_EVERY_S = 0.25
DRIVER = "mpca.cli.bench.run.exchange_driver"
#: What the driver runs, in this order.
CASES = ("small", "overlapped", "blocking", "jobs")
#: Of the small case. At K = 4 the JVMs' compilers take half of the CPU of the first 300 cycles, and a fifth of that after
#: 1,500; the cycles in the middle of the former take 104 ms, those from 1,000 on 41 to 49.
SMALL_CYCLES = 1800


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
@click.option("--codec", type=click.Choice(["none", "bf16", "int8", "int4"]), default="none", show_default=True)
@click.option(
    "--phases",
    type=click.IntRange(1, 3),
    default=3,
    show_default=True,
    help="Phases of the run that overlaps; it has 3 shards.",
)
@click.option(
    "--cycles", type=click.IntRange(min=LEAST_CYCLES), default=18, show_default=True, help="Cycles of the overlapped run."
)
@click.option(
    "--encrypt", flag_value=SPARKS_CIPHER, default="", help="With spark.network.crypto.enabled, by Spark's own cipher."
)
@json_option
def command(
    agents: int,
    size_bytes: int,
    rate: str | None,
    reducer: str,
    broadcast: str,
    codec: str,
    phases: int,
    cycles: int,
    encrypt: str,
    as_json: bool,
) -> None:
    """The exchange on real executors behind shaped links, beside plain TCP on the same links."""
    if rate is not None:
        check()
    show(measure(agents, size_bytes, rate, reducer, broadcast, phases, cycles, encrypt=encrypt, codec=codec), as_json)


def measure(
    agents: int,
    size_bytes: int,
    rate: str | None,
    reducer: str = "ranges",
    broadcast: str = "relay",
    phases: int = 3,
    cycles: int = 18,
    exchanges: int = 4,
    small_cycles: int = SMALL_CYCLES,
    jobs: int = 300,
    encrypt: str = "",
    codec: str = "none",
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
        "codec": codec,
        "phases": phases,
        "encrypt": encrypt,
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mpca-bench-")))
        spec = Spec(
            work_dir=str(folder),
            agents=agents,
            size_bytes=size_bytes,
            reducer=reducer,
            broadcast=broadcast,
            codec=codec,
            phases=phases,
            cycles=cycles,
            exchanges=exchanges,
            small_cycles=small_cycles,
            jobs=jobs,
            encrypt=encrypt,
        )
        if rate is None:
            driver = NodeProcess(stack, [], DRIVER, spec)
            driver.hear()
            raw = _play(driver, None)
            links: dict[str, Any] = {}
            said |= {
                "counts": False,
                "note": "loopback, without --shape: shows that it runs, and measures CPU seconds per GB alone",
            }
        else:
            raw, links = _shaped(stack, folder, spec, rate)
            said |= {"counts": True, "note": ""}
    return said | figures(raw, links, size_bytes)


def _shaped(stack: ExitStack, folder: Path, spec: Any, rate: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the driver measures on nodes of their own, and what plain TCP and the switch measure of the links."""
    _tell(f"starting a Master and {spec.agents} executors on nodes of their own")
    nodes = Nodes(stack, folder, spec.agents, (2 << 30) + 8 * spec.size_bytes)
    net, workers = nodes.net, nodes.workers
    driver = NodeProcess(stack, net.command("driver", []), DRIVER, replace(spec, **nodes.of_driver()))
    driver.hear()
    net.shape(rate, but=["master"])
    _tell(f"links are limited to {rate}; plain TCP first")
    mib_s = stream_rate(net, "driver", workers[0])
    tcp = [cycle_seconds(net, "driver", workers, spec.size_bytes // SHARDS, spec.codec) for _ in range(3)]
    b_s = spec.size_bytes / (1 << 20) / mib_s
    try:
        with Sampler(net.ports, PORTS_EVERY_S) as ports:
            raw = _play(driver, b_s)
    except MpcaError as error:
        raise MpcaError(f"{error}\n{nodes.daemons.executor_log()}") from None
    return raw, {
        "b_s": b_s,
        "stream_mib_s": mib_s,
        "congestion": net.congestion(),
        "tcp_cycle_s": tcp,
        "tcp_period_over_b": SHARDS * statistics.median(tcp) / b_s,
        "ports": ports.samples,
        "workers": workers,
    }


def _play(driver: NodeProcess, b_s: float | None) -> dict[str, Any]:
    """Let the driver measure.

    Returns:
        Its answers by case.
    """
    driver.tell({"b_s": b_s})
    cases: dict[str, Any] = {}
    while len(cases) < len(CASES):
        _tell(f"running {CASES[len(cases)]}")
        one = driver.hear()
        cases[one["case"]] = one
    return cases


def _tell(text: str) -> None:
    """Tell the waiting user what goes on, on stderr: stdout is for the result."""
    click.echo(text, err=True)
