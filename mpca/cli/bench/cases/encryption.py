"""`mpca bench encryption`: what it costs that the exchange is encrypted, and that HDFS protects what it sends, as ratios.

The exchange runs on loopback, once for each of `CIPHERS` in a turn, with a session each. HDFS is read by one JVM, the driver's
of a session, as a driver reads it: a client of its own for each of `PROTECTIONS` takes turns over one file. CPU seconds are
those of one process; what DataNodes spend is not in them.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from typing import TYPE_CHECKING, Any

import click
import psutil

from mpca.cli.bench.cases import exchange
from mpca.cli.bench.figures import LEAST_CYCLES, SHARDS
from mpca.cli.bench.show import show
from mpca.cli.options import SIZE, json_option
from mpca.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mpca.spark.hdfs.store import HdfsStore
    from mpca.storage import Location

__all__ = ["command", "measure", "ratios", "reads"]

#: The first is what the others are compared with. SECURITY.md advises the second.
CIPHERS = {"plain": "", "gcm": "AES/GCM/NoPadding", "ctr": exchange.SPARKS_CIPHER}
_SUITES = "dfs.encrypt.data.transfer.cipher.suites"
#: Settings of a client, which a DataNode of a realm grants if its own list has them.
PROTECTIONS = {
    "authentication": {"dfs.data.transfer.protection": "authentication"},
    "integrity": {"dfs.data.transfer.protection": "integrity"},
    "privacy": {"dfs.data.transfer.protection": "privacy", _SUITES: ""},
    "privacy_aes": {"dfs.data.transfer.protection": "privacy", _SUITES: "AES/CTR/NoPadding"},
}
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")  # of the kernel's count of CPU seconds
Turns = dict[str, list[dict[str, float]]]  # by way, the figures of each turn


@click.command()
@click.option("--at", help="Measure HDFS too: the benchmark writes a folder here, and removes it. Needs Kerberos.")
@click.option("--agents", default=2, show_default=True, help="K: agents, each on an executor of its own.")
@click.option("--size", "size_bytes", type=SIZE, default="16MiB", show_default=True, help="M: bytes of the whole model.")
@click.option("--cycles", type=click.IntRange(min=LEAST_CYCLES), default=30, show_default=True, help="Cycles of each run.")
@click.option("--file", "file_bytes", type=SIZE, default="64MiB", show_default=True, help="Size of the file on HDFS.")
@click.option("--turns", type=click.IntRange(min=1), default=2, show_default=True, help="How often each way is measured.")
@json_option
def command(at: str | None, agents: int, size_bytes: int, cycles: int, file_bytes: int, turns: int, as_json: bool) -> None:
    """What encrypting the exchange, and what HDFS sends, costs: ratios from one call."""
    show(measure(at, agents, size_bytes, cycles, file_bytes, turns), as_json)


def measure(
    at: str | None = None,
    agents: int = 2,
    size_bytes: int = 16 << 20,
    cycles: int = 30,
    file_bytes: int = 64 << 20,
    turns: int = 2,
) -> dict[str, Any]:
    """The `encryption` case.

    Raises:
        ConfigError: `at` is no folder of HDFS, or of one without Kerberos.
    """
    load = [os.getloadavg()[0]]
    said: dict[str, Any] = {"case": "encryption"}
    if at is not None:  # first: it may be refused
        said |= reads(at, file_bytes, turns)
    ways: Turns = {name: [] for name in CIPHERS}
    for turn in range(turns):
        for name in list(CIPHERS)[:: -1 if turn % 2 else 1]:
            click.echo(f"exchange, turn {turn + 1}: {name}", err=True)
            ways[name].append(_exchange(agents, size_bytes, cycles, CIPHERS[name]))
    return {
        **said,
        **ratios("exchange", ways),
        "agents": agents,
        "size_bytes": size_bytes,
        "turns": turns,
        "load": [*load, os.getloadavg()[0]],
        "cores": os.cpu_count(),
    }


def _exchange(agents: int, size_bytes: int, cycles: int, cipher: str) -> dict[str, float]:
    found = exchange.measure(agents, size_bytes, None, cycles=cycles, exchanges=3, encrypt=cipher)
    cpu = {key: found[key] for key in ("executor_cpu_s_per_gb", "driver_jvm_cpu_s_per_gb")}
    return {**cpu, "period_s": SHARDS * statistics.fmean(found["cycle_s"])}


def ratios(what: str, ways: Turns) -> dict[str, Any]:
    """Medians over turns of each way, and for each but the first medians of its ratios over the first one in the same turn."""
    first, *others = ways

    def medians(rows: list[dict[str, float]]) -> dict[str, float]:
        return {key: statistics.median(one[key] for one in rows) for key in rows[0]}

    over = {
        name: medians([{key: one[key] / base[key] for key in one} for one, base in zip(ways[name], ways[first], strict=True)])
        for name in others
    }
    return {what: {name: medians(rows) for name, rows in ways.items()}, f"{what}_ratios": over}


# ---- HDFS ----------------------------------------------------------------------------------------------------------------


def reads(at: str, file_bytes: int, turns: int) -> dict[str, Any]:
    """The half of HDFS; as of `measure`."""
    from mpca.cli.bench.run.place import Place, cluster_jvms, open_session
    from mpca.storage import Location

    location = Location.parse(at) / f"mpca-bench-{os.getpid()}"
    if location.scheme != "hdfs":
        raise ConfigError(f"--at {at}: must be a folder of HDFS, hdfs://...")
    with (
        tempfile.TemporaryDirectory(prefix="mpca-bench-") as folder,
        open_session(Place(work_dir=folder, agents=1), 512 << 20, cluster_jvms(folder)) as spark,
    ):
        context: Any = spark.sparkContext
        if not context._jvm.org.apache.hadoop.security.UserGroupInformation.isSecurityEnabled():
            raise ConfigError(
                f"--at {at}: without Kerberos a client cannot choose how HDFS protects what it sends: "
                "dfs.encrypt.data.transfer is the NameNode's; leave --at out"
            )
        ways, refused = _in_turns(spark, location, file_bytes, turns)
    return {**ratios("reads", ways), "refused": refused, "file_bytes": file_bytes}


def _in_turns(spark: SparkSession, location: Location, file_bytes: int, turns: int) -> tuple[Turns, list[str]]:
    """Read one file in each way, once unmeasured, then `turns` times.

    Returns:
        The figures; and the ways that DataNodes refuse.
    """
    from mpca.spark.hdfs.store import HdfsStore

    writer = HdfsStore(spark, location)  # as the cluster's configuration says
    stores = {name: _store(spark, location, name) for name in PROTECTIONS}
    (jvm,) = (one for one in psutil.Process().children() if one.name() == "java")
    ways: Turns = {}
    refused = []
    try:
        click.echo(f"writing {file_bytes} bytes to {location.text}", err=True)
        writer.write("file", os.urandom(file_bytes))
        for name, store in stores.items():
            try:
                store.read("file")
                ways[name] = []
            except OSError as error:
                click.echo(f"{name}: {error}", err=True)
                refused.append(name)
        for turn in range(turns):
            for name in list(ways)[:: -1 if turn % 2 else 1]:
                ways[name].append(_whole(stores[name], file_bytes, jvm))
    finally:
        writer.delete("")
        for store in (writer, *stores.values()):
            store.close()
    return ways, refused


def _store(spark: SparkSession, location: Location, name: str) -> HdfsStore:
    from mpca.spark.hdfs.store import HdfsStore

    context: Any = spark.sparkContext
    # Clients of one context share their connections to DataNodes, whatever those protect.
    for key, value in {**PROTECTIONS[name], "dfs.client.context": name}.items():
        context._jsc.hadoopConfiguration().set(key, value)
    return HdfsStore(spark, location)


def _whole(store: HdfsStore, file_bytes: int, jvm: psutil.Process) -> dict[str, float]:
    before, start = sum(jvm.cpu_times()[:2]), time.perf_counter()
    store.read("file")
    seconds, used = time.perf_counter() - start, max(_TICK_S, sum(jvm.cpu_times()[:2]) - before)
    return {"mb_s": file_bytes / seconds / 1e6, "jvm_cpu_s_per_gb": used / file_bytes * 1e9}
