"""`mpca bench tcp`: measures the ceiling alone, without Spark. `net/tcp.py` says what that is."""

from __future__ import annotations

import click

from mpca.cli.bench.net.network import RATE
from mpca.cli.bench.net.tcp import measure
from mpca.cli.bench.show import show
from mpca.cli.options import SIZE, json_option

__all__ = ["command"]


@click.command()
@click.option("--agents", default=4, show_default=True, help="K: nodes that exchange, beside the driver's.")
@click.option(
    "--size", "size_bytes", type=SIZE, default="16MiB", show_default=True, help="M: bytes of the whole model, in three shards."
)
@click.option("--shape", "rate", type=RATE, default="30mbit", show_default=True, help="Rate of every link; needs root.")
@json_option
def command(agents: int, size_bytes: int, rate: str, as_json: bool) -> None:
    """Plain TCP on shaped links: B of one stream, and the traffic of one cycle without its dependencies."""
    show(measure(agents, size_bytes, rate), as_json)
