"""`mpca bench reads`: HDFS through the executor's JVM, as agents read it, over WebHDFS by the hdfs package.

One agent on an executor of this machine reads the same ranges of one file in both ways, in turns. A range is as long as a unit
of ImageNet's records. `reads_ratio` compares bytes a second. CPU seconds are those of the whole machine, so the work of
DataNodes counts if they run on it.
"""

from __future__ import annotations

import os
import statistics
from typing import Any

import click

from mpca.cli.bench.load import cpu_ticks
from mpca.cli.bench.run.alone import in_agent
from mpca.cli.bench.show import show
from mpca.cli.options import SIZE, json_option
from mpca.errors import ConfigError

__all__ = ["command", "measure", "read_both"]

RANGE_BYTES = 3_500_000


@click.command()
@click.option("--at", default="hdfs:///tmp", show_default=True, help="The benchmark writes a folder here, and removes it.")
@click.option("--size", "size_bytes", type=SIZE, default="64MiB", show_default=True, help="Size of the file.")
@click.option("--turns", default=6, show_default=True, help="How often each way reads the whole file.")
@json_option
def command(at: str, size_bytes: int, turns: int, as_json: bool) -> None:
    """Reading HDFS by the executor's JVM over reading it by WebHDFS."""
    show(measure(at, size_bytes, turns), as_json)


def measure(at: str = "hdfs:///tmp", size_bytes: int = 64 << 20, turns: int = 6) -> dict[str, Any]:
    """The `reads` case.

    Raises:
        ConfigError: not a folder of HDFS, or it is not known where its WebHDFS is.
        MpcaError: the agent did not read to the end.
    """
    from mpca.storage import Location
    from mpca.storage.locations import webhdfs_of
    from mpca.storage.webhdfs import WebHdfsStore

    location = Location.parse(at) / f"mpca-bench-{os.getpid()}"
    if location.scheme != "hdfs":
        raise ConfigError(f"--at {at}: must be a folder of HDFS, hdfs://...")
    web = webhdfs_of(location)
    store = WebHdfsStore(web)
    try:
        click.echo(f"writing {size_bytes} bytes to {location.text}", err=True)
        store.write("file", os.urandom(size_bytes))
        click.echo(f"{turns} turns of each way", err=True)
        ways: dict[str, list[dict[str, float]]] = in_agent(read_both, location.text, web.text, size_bytes, turns)
    finally:
        store.delete("")
        store.close()
    rates = {name: [one["bytes"] / one["seconds"] for one in rows] for name, rows in ways.items()}
    return {
        "case": "reads",
        "reads_ratio": statistics.median(one / other for one, other in zip(rates["jvm"], rates["webhdfs"], strict=True)),
        **{f"{name}_mb_s": statistics.median(rates[name]) / 1e6 for name in ways},
        **{
            f"{name}_cpu_s_per_gb": sum(one["cpu_s"] for one in rows) / sum(one["bytes"] for one in rows) * 1e9
            for name, rows in ways.items()
        },
        "bytes": size_bytes,
        "range_bytes": RANGE_BYTES,
        "turns": turns,
        "cores": os.cpu_count(),
    }


def read_both(url: str, web_url: str, size_bytes: int, turns: int) -> dict[str, list[dict[str, float]]]:
    """In an agent: read the whole file in ranges in both ways, once unmeasured, then `turns` times in alternating order."""
    import time

    from mpca.data.manifest import store_at

    stores = {"jvm": store_at(url), "webhdfs": store_at(web_url)}
    tick = os.sysconf("SC_CLK_TCK")

    def whole(name: str) -> dict[str, float]:
        ticks, start, read = cpu_ticks(), time.perf_counter(), 0
        for begin in range(0, size_bytes, RANGE_BYTES):
            read += len(stores[name].read_range("file", begin, min(RANGE_BYTES, size_bytes - begin)))
        seconds, now = time.perf_counter() - start, cpu_ticks()
        busy = (now.total - now.idle) - (ticks.total - ticks.idle)
        return {"bytes": read, "seconds": seconds, "cpu_s": busy / tick}

    ways: dict[str, list[dict[str, float]]] = {name: [] for name in stores}
    for turn in range(turns + 1):
        for name in list(stores)[:: 1 if turn % 2 else -1]:
            measured = whole(name)
            if turn:
                ways[name].append(measured)
    return ways
